//! The plan of one schedule: the deployment, its tasks, and its faults with their moments.

use std::time::Duration;

use delayd::model::breaker;
use delayd::store::{Misfired, TopicEntry};

use crate::dice::{Dice, Throw};
use crate::recurring::{Recurring, failovers};

/// One schedule. All moments count from its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) topics: Vec<TopicEntry>,
    pub(crate) services: usize,
    pub(crate) settings: Settings,
    /// For each instance, the offset of its clock from the store's in milliseconds, and its
    /// mishaps.
    pub(crate) instances: Vec<(i64, Vec<(Duration, Mishap)>)>,
    pub(crate) adds: Vec<(Duration, Add)>,
    pub(crate) pauses: Vec<(Duration, TopicPause)>,
    /// When a topic is deleted and created again with another number of lanes, if it is empty then.
    pub(crate) recounts: Vec<(Duration, TopicEntry)>,
    /// Jumps of the store's clock, in milliseconds.
    pub(crate) jumps: Vec<(Duration, i64)>,
    pub(crate) outages: Vec<Outage>,
    pub(crate) store: StoreFaults,
    /// How many of a thousand messages of workers to an instance are lost.
    pub(crate) lost_messages: u64,
    /// The instances, by index, that do not know a service, by its number.
    pub(crate) lacking: Vec<(usize, usize)>,
    /// Why the first instance cannot call what is due, although it runs.
    pub(crate) ailment: Option<Ailment>,
    /// The instances, by index, of an earlier version: they look at all lanes.
    pub(crate) of_old_version: Vec<usize>,
    /// How many of a thousand calls go wrong.
    pub(crate) bad_calls: u64,
    /// The longest time that the receiver usually takes for a call, in milliseconds.
    pub(crate) call_ms: u64,
    /// How many of a thousand tasks a client cancels, reschedules or replays.
    pub(crate) meddling: u64,
    pub(crate) recurring: Vec<Recurring>,
    /// When the store forgets the last plan of each schedule.
    pub(crate) failovers: Vec<Duration>,
    /// When faults stop.
    pub(crate) length: Duration,
}

/// The settings that all instances share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) timeout: Duration,
    pub(crate) claim_batch: usize,
    pub(crate) concurrency: usize,
    pub(crate) concurrency_per_service: usize,
    pub(crate) idle_stop: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) breaker: breaker::Params,
}

/// What happens to an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    /// It is killed at any point. Another life begins after a while.
    Crash { down: Duration },
    /// It pauses, and then goes on with the state that it had.
    Pause { span: Duration },
    /// It is stopped in order and started again.
    Restart { grace: Duration, down: Duration },
    /// Its own clock jumps by this many milliseconds.
    ClockJump { by_ms: i64 },
}

/// Why an instance that runs cannot call what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// It has one slot for each service, and its calls are slow.
    SaturatedSlots,
    /// Its calls fail, so its breakers open.
    OpenBreaker,
    /// Receivers answer it with `Retry-After`.
    RetryAfter,
    /// The store refuses its claims.
    FailingClaims,
    /// The store refuses its settles.
    ServerAway,
}

impl Ailment {
    const ALL: [Self; 5] = [
        Self::SaturatedSlots,
        Self::OpenBreaker,
        Self::RetryAfter,
        Self::FailingClaims,
        Self::ServerAway,
    ];
}

/// A task to be added.
#[derive(Clone, Debug)]
pub(crate) struct Add {
    pub(crate) topic: usize,
    pub(crate) service: usize,
    pub(crate) delay: Duration,
    /// One of few keys: at most one task of a key waits.
    pub(crate) key: Option<u64>,
    /// How long after its due moment it expires.
    pub(crate) expires_after: Option<Duration>,
    /// The service of its dead-letter callback.
    pub(crate) on_dead: Option<usize>,
}

/// A topic is paused for a while.
#[derive(Clone, Debug)]
pub(crate) struct TopicPause {
    pub(crate) topic: usize,
    pub(crate) span: Duration,
    /// What overdue tasks become; `None`: they are delivered late.
    pub(crate) becomes: Option<Misfired>,
}

/// The store is unavailable for all instances.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// It does not answer, instead of refusing requests.
    pub(crate) is_silent: bool,
}

/// How the store treats single requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreFaults {
    /// How many of a thousand requests go wrong.
    pub(crate) share: u64,
    /// The longest time that a request or an answer usually takes, in milliseconds.
    pub(crate) latency_ms: u64,
}

/// The name of a service.
pub(crate) fn service_name(which: usize) -> String {
    format!("service-{which}")
}

const HOUR_MS: i64 = 3_600_000;

impl Plan {
    /// The schedule of a seed. Every eighth schedule has no faults except skewed clocks and orderly
    /// restarts, another eighth only loses instances and their messages, and in another one an
    /// instance cannot call.
    pub(crate) fn of(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let mut plan = Self::calm(&dice);
        match seed % 8 {
            0 => {}
            1 => plan.lose_members(&dice),
            2 => plan.ail(&dice, Ailment::ALL[(seed / 8 % 5) as usize]),
            _ => {
                plan.spoil(&dice);
                plan.failovers = failovers(&dice, &plan);
            }
        }
        plan.recurring = Recurring::of(&dice, &plan);
        plan
    }

    /// Whether an instance does not know a service.
    pub(crate) fn lacks(&self, instance: usize, service: &str) -> bool {
        self.lacking
            .iter()
            .any(|(lacks, which)| *lacks == instance && service_name(*which) == service)
    }

    /// Instances die, stand still, stop and come back, and nothing else goes wrong. The first
    /// instance knows all services.
    fn lose_members(&mut self, dice: &Dice) {
        let mut throw = dice.throw("members");
        self.pauses.clear();
        self.settings.concurrency = 64;
        self.settings.concurrency_per_service = 32;
        self.store.latency_ms = throw.one_of(&[0, 1, 4]);
        self.lost_messages = throw.one_of(&[0, 0, 200, 1_000]);
        self.instances.resize(throw.between(2, 4) as usize, (0, Vec::new()));
        self.add_old_version(&mut dice.throw("versions"));
        let length = self.length;
        for (instance, (_, mishaps)) in self.instances.iter_mut().enumerate() {
            let mut throw = dice.throw(("member", instance));
            for service in 0..self.services {
                if instance > 0 && throw.per_mille(300) {
                    self.lacking.push((instance, service));
                }
            }
            mishaps.clear();
            for _ in 0..throw.one_of(&[0, 0, 1, 2]) {
                let down = throw.millis(0, 9_000);
                let mishap = match throw.between(0, 2) {
                    0 => Mishap::Crash { down },
                    1 => Mishap::Pause { span: throw.millis(500, 9_000) },
                    _ => Mishap::Restart { grace: Duration::from_secs(3), down },
                };
                mishaps.push((Self::moment(&mut throw, length), mishap));
            }
            mishaps.sort_by_key(|(at, _)| *at);
        }
    }

    /// The first instance cannot call, and nothing else goes wrong except lost messages.
    fn ail(&mut self, dice: &Dice, ailment: Ailment) {
        let mut throw = dice.throw("ailment");
        self.pauses.clear();
        self.settings.concurrency = 64;
        self.settings.concurrency_per_service = 32;
        self.store.latency_ms = throw.one_of(&[0, 1, 4]);
        self.lost_messages = throw.one_of(&[0, 0, 200]);
        self.instances = vec![(0, Vec::new()); throw.between(2, 4) as usize];
        self.ailment = Some(ailment);
        self.add_old_version(&mut throw);
    }

    /// In some schedules, the last instance has an earlier version.
    fn add_old_version(&mut self, throw: &mut Throw) {
        if throw.per_mille(250) {
            self.of_old_version.push(self.instances.len() - 1);
        }
    }

    fn calm(dice: &Dice) -> Self {
        let mut throw = dice.throw("deployment");
        let length = throw.millis(10_000, 25_000);
        let topics: Vec<TopicEntry> = (0..throw.between(1, 2))
            .map(|i| TopicEntry {
                topic: format!("topic-{i}").parse().unwrap(),
                shards: throw.one_of(&[1, 1, 2]),
            })
            .collect();
        let services = throw.between(1, 3) as usize;
        let settings = Settings {
            lease: throw.one_of(&[3_000, 5_000, 10_000].map(Duration::from_millis)),
            timeout: Duration::from_secs(2),
            claim_batch: throw.one_of(&[1, 4, 100]),
            concurrency: throw.one_of(&[4, 64]),
            concurrency_per_service: throw.one_of(&[1, 3, 32]),
            idle_stop: throw.one_of(&[1_000, 6_000].map(Duration::from_millis)),
            max_attempts: throw.one_of(&[1, 3, 6]),
            breaker: breaker::Params {
                consecutive_failures: throw.one_of(&[2, 5]),
                open: Duration::from_secs(1),
                open_max: Duration::from_secs(8),
                ..breaker::Params::default()
            },
        };
        let instances = (0..throw.between(1, 3))
            .map(|instance| {
                let skew = throw.one_of(&[0, 0, 7, -7, 2_500, -2_500, HOUR_MS, -HOUR_MS]);
                let mut mishaps = Vec::new();
                if throw.per_mille(300) {
                    mishaps.push(Self::restart(&mut dice.throw(("restart", instance)), length));
                }
                (skew, mishaps)
            })
            .collect();
        let mut adds: Vec<(Duration, Add)> = (0..throw.between(2, 12))
            .map(|n| {
                let at = throw.millis(0, length.as_millis() as u64 * 2 / 3);
                (at, Self::add(&mut throw, &mut dice.throw(("wishes", n)), topics.len(), services))
            })
            .collect();
        adds.sort_by_key(|(at, _)| *at);
        let recounts = Self::recounts(&mut dice.throw("recounts"), &adds, &topics);
        let pauses = Self::pauses(&mut dice.throw("pauses"), &adds, topics.len(), length);
        Self {
            topics,
            services,
            settings,
            instances,
            adds,
            pauses,
            recounts,
            jumps: Vec::new(),
            outages: Vec::new(),
            store: StoreFaults { share: 0, latency_ms: throw.one_of(&[0, 1, 4]) },
            lost_messages: throw.one_of(&[0, 300]),
            lacking: Vec::new(),
            ailment: None,
            of_old_version: Vec::new(),
            bad_calls: 0,
            call_ms: 20,
            meddling: 0,
            recurring: Vec::new(),
            failovers: Vec::new(),
            length,
        }
    }

    fn add(throw: &mut Throw, wishes: &mut Throw, topics: usize, services: usize) -> Add {
        let delay = match throw.between(0, 3) {
            0 => Duration::ZERO,
            // Whole seconds, so that several tasks fall due together.
            1 => Duration::from_secs(throw.between(1, 3)),
            _ => throw.millis(1, 9_000),
        };
        Add {
            topic: throw.number() as usize % topics,
            service: throw.number() as usize % services,
            delay,
            key: wishes.per_mille(400).then(|| wishes.between(0, 1)),
            expires_after: wishes.per_mille(200).then(|| wishes.millis(0, 6_000)),
            on_dead: wishes.per_mille(300).then(|| wishes.number() as usize % services),
        }
    }

    /// Most pauses are about the due moment of some task. A pause is no fault: a paused topic loses
    /// nothing.
    fn pauses(
        throw: &mut Throw,
        adds: &[(Duration, Add)],
        topics: usize,
        length: Duration,
    ) -> Vec<(Duration, TopicPause)> {
        let count = throw.one_of(&[0, 0, 1, 3]);
        let mut pauses: Vec<_> = (0..count)
            .map(|_| {
                let (at, add) = &adds[throw.number() as usize % adds.len()];
                let (from, topic) = match throw.per_mille(700) {
                    true => ((*at + add.delay).saturating_sub(throw.millis(0, 2_500)), add.topic),
                    false => (Self::moment(throw, length), throw.number() as usize % topics),
                };
                let becomes = throw.one_of(&[None, Some(Misfired::Expired), Some(Misfired::Dead)]);
                (from, TopicPause { topic, span: throw.millis(50, 6_000), becomes })
            })
            .collect();
        pauses.sort_by_key(|(from, _)| *from);
        pauses
    }

    /// Shortly before a topic's first task: its clients know the number of lanes from before.
    fn recounts(
        throw: &mut Throw,
        adds: &[(Duration, Add)],
        topics: &[TopicEntry],
    ) -> Vec<(Duration, TopicEntry)> {
        let mut recounts = Vec::new();
        for (at, topic) in topics.iter().enumerate() {
            let first = adds.iter().find(|(_, add)| add.topic == at);
            if let Some((first, _)) = first.filter(|_| throw.per_mille(300)) {
                let shards = topic.shards % 3 + throw.one_of(&[1, 2]);
                let moment = first.saturating_sub(throw.millis(0, 1_500)) + throw.millis(0, 300);
                recounts.push((moment, TopicEntry { shards, ..topic.clone() }));
            }
        }
        recounts
    }

    fn restart(throw: &mut Throw, length: Duration) -> (Duration, Mishap) {
        // The grace period is as long as a call: no call needs to be cut off.
        let (grace, down) = (Duration::from_secs(3), throw.millis(0, 3_000));
        (Self::moment(throw, length), Mishap::Restart { grace, down })
    }

    fn moment(throw: &mut Throw, length: Duration) -> Duration {
        throw.millis(0, length.as_millis() as u64)
    }

    /// Adds the faults: each kind in about half of the schedules.
    fn spoil(&mut self, dice: &Dice) {
        let mut throw = dice.throw("faults");
        self.store.share = throw.one_of(&[0, 0, 20, 100, 300]);
        self.store.latency_ms = throw.one_of(&[0, 2, 30, 400]);
        self.bad_calls = throw.one_of(&[0, 100, 400, 800]);
        self.call_ms = throw.one_of(&[20, 400, 1_900]);
        self.meddling = throw.one_of(&[0, 300, 1_000]);
        if throw.per_mille(300) {
            let from = Self::moment(&mut throw, self.length);
            let to = from + throw.millis(500, 12_000);
            self.outages.push(Outage { from, to, is_silent: throw.per_mille(500) });
        }
        if throw.per_mille(250) {
            let jumps = [-24 * HOUR_MS, -HOUR_MS, -3_000, 3_000, HOUR_MS, 24 * HOUR_MS];
            for _ in 0..throw.between(1, 2) {
                self.jumps.push((Self::moment(&mut throw, self.length), throw.one_of(&jumps)));
            }
            self.jumps.sort_unstable();
        }
        let (length, call_ms, lease_ms) =
            (self.length, self.call_ms, self.settings.lease.as_millis() as u64);
        // Most faults matter around a due moment, so half of them come at that time.
        let dues: Vec<Duration> = self.adds.iter().map(|(at, add)| *at + add.delay).collect();
        for (instance, (_, mishaps)) in self.instances.iter_mut().enumerate() {
            let mut throw = dice.throw(("mishaps", instance));
            for _ in 0..throw.one_of(&[0, 1, 2, 4, 6]) {
                let mishap = match throw.between(0, 7) {
                    0..=2 => Mishap::Crash { down: throw.millis(0, 4_000) },
                    3 => Mishap::Pause { span: throw.millis(100, lease_ms) },
                    // It goes on when its leases have just expired, or long after.
                    4 => Mishap::Pause { span: throw.millis(lease_ms, lease_ms + 2_000) },
                    5 => Mishap::Pause { span: throw.millis(lease_ms, 3 * lease_ms) },
                    6 => Mishap::Restart {
                        grace: throw.millis(0, 3_000),
                        down: throw.millis(0, 2_000),
                    },
                    _ => Mishap::ClockJump {
                        by_ms: throw.one_of(&[-24 * HOUR_MS, -HOUR_MS, HOUR_MS, 24 * HOUR_MS]),
                    },
                };
                let at = match throw.per_mille(500) {
                    true => {
                        dues[throw.number() as usize % dues.len()] + throw.millis(0, 40 + call_ms)
                    }
                    false => Self::moment(&mut throw, length),
                };
                mishaps.push((at, mishap));
            }
            mishaps.sort_by_key(|(at, _)| *at);
        }
    }
}
