//! The simulated Redis as one instance sees it: each request travels there, waits for its turn,
//! takes the time of its scripts, and travels back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Lane, Receipt, StoreId, TaskId};
use delayd::store::{
    Asker, AttemptNote, Claim, Claimed, Delivery, Hint, Holds, Look, Looked, Message, NextDue,
    Result, Revision, Settle, Settled, Signals, Transition,
};
use futures_util::future::join_all;
use tokio::sync::broadcast;

use super::costs::{Job, Script};
use super::redis::{BACKLOG, Redis};

/// The most lanes of one script of a poll, and of one of a sample.
const LANES_A_POLL: usize = 64;
const LANES_A_SAMPLE: usize = 16;
/// How many scripts of a poll Redis reads from a connection before it turns to the next one. It
/// reads 16 KiB at a time.
const KEYS_A_READ: usize = 256;
/// The most settles of one script.
const SETTLES_A_SCRIPT: usize = 64;

/// The access of one instance.
#[derive(Debug)]
pub(crate) struct Access {
    redis: Arc<Redis>,
    /// The hints of this instance.
    hints: broadcast::Sender<Hint>,
    /// The channel on which this instance receives messages of the others.
    messages: broadcast::Sender<Message>,
    /// The number of this instance, and how many receipts it has made.
    number: usize,
    receipts: AtomicU64,
}

impl Access {
    pub(crate) fn new(redis: Arc<Redis>, number: usize) -> Self {
        let (hints, messages) = (broadcast::Sender::new(BACKLOG), redis.listen());
        Self { redis, hints, messages, number, receipts: AtomicU64::new(0) }
    }

    /// Stores tasks of some lanes, each with its due moment: one script for each lane.
    pub(crate) async fn add(&self, tasks: Vec<(Lane, UnixMillis)>) {
        let mut lanes: BTreeMap<Lane, Vec<UnixMillis>> = BTreeMap::new();
        for (lane, due) in tasks {
            lanes.entry(lane).or_default().push(due);
        }
        self.redis.travel().await;
        for (lane, dues) in &lanes {
            let store = || {
                let mut kept = self.redis.lanes.lock().unwrap();
                dues.iter().for_each(|due| kept.add(lane, self.redis.next_id(), *due));
                ((), Job::one(Script::Add, dues.len()))
            };
            self.redis.server(self.redis.server_of(lane)).serve(store).await;
        }
        self.redis.travel().await;
        for (lane, dues) in lanes {
            let due = dues.into_iter().min().expect("a lane of the batch has tasks");
            self.hint(Hint { lane, due, is_pull: false });
        }
    }

    /// Sends a hint to this instance.
    fn hint(&self, hint: Hint) {
        // An instance that is not ready does not receive it.
        let _ = self.hints.send(hint);
    }

    /// Counts the lanes of each second, in rotation, as the sampler does.
    pub(crate) async fn sample_each_second(self: Arc<Self>) {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        let lanes = self.redis.setup.lanes.min(self.redis.setup.sampled);
        loop {
            seconds.tick().await;
            self.redis.travel().await;
            for number in 0..self.redis.setup.servers {
                let items = lanes / self.redis.setup.servers;
                let calls = items.div_ceil(self.redis.setup.lanes_a_script(LANES_A_SAMPLE));
                // The answers of a script are large, and other requests come between them.
                for call in 0..calls {
                    let items = items * (call + 1) / calls - items * call / calls;
                    let job = Job { script: Script::Sample, calls: 1, items };
                    self.redis.server(number).serve(|| ((), job)).await;
                }
            }
        }
    }

    /// Reads the next moments of the lanes, each of its server, without the way there and back.
    async fn read_next(&self, lanes: &[Lane]) -> NextDue {
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); self.redis.setup.servers];
        for (place, lane) in lanes.iter().enumerate() {
            places[self.redis.server_of(lane)].push(place);
        }
        let reads = places.iter().enumerate().map(async |(number, places)| {
            let a_script = self.redis.setup.lanes_a_script(LANES_A_POLL);
            let mut read = Vec::new();
            for places in places.chunks(KEYS_A_READ) {
                let calls = places.len().div_ceil(a_script);
                let look = || {
                    let mut kept = self.redis.lanes.lock().unwrap();
                    let next = places.iter().map(|place| (*place, kept.next_due(&lanes[*place])));
                    read.extend(next);
                    ((), Job { script: Script::Poll, calls, items: places.len() })
                };
                self.redis.server(number).serve(look).await;
            }
            read
        });
        let now = self.redis.clock.now();
        let mut next = vec![None; lanes.len()];
        for (place, due) in join_all(reads).await.into_iter().flatten() {
            next[place] = due;
        }
        NextDue { now, lanes: next }
    }
}

impl Signals for Access {
    async fn id(&self) -> Result<StoreId> {
        Ok(StoreId(1))
    }

    fn server_of(&self, lane: &Lane) -> u64 {
        self.redis.server_of(lane) as u64
    }

    fn round_trip(&self, _: &Lane) -> Duration {
        self.redis.setup.round_trip
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    fn messages(&self) -> Option<broadcast::Receiver<Message>> {
        Some(self.messages.subscribe())
    }

    fn tell_others(&self, message: Message) {
        let (redis, sender) = (self.redis.clone(), self.messages.clone());
        tokio::spawn(async move {
            redis.travel().await;
            let publish = || ((), Job::one(Script::Publish, redis.listeners()));
            redis.server(0).serve(publish).await;
            redis.travel().await;
            redis.pass_on(&message, &sender);
        });
    }
}

impl Delivery for Access {
    async fn look(&self, look: Look) -> Looked {
        self.redis.travel().await;
        let beat = || {
            let living = self.redis.beat(look.heartbeat);
            let job = Job::one(Script::Look, living.len());
            (living, job)
        };
        let instances = self.redis.server(0).serve(beat).await;
        let next = match &look.workers[..] {
            [] => None,
            lanes => Some(self.read_next(lanes).await),
        };
        self.redis.travel().await;
        let revision = Revision(1);
        let registry = (look.seen != Some(revision)).then(|| (revision, self.redis.topics.clone()));
        Looked {
            registry: Ok(registry),
            holds: Ok(Holds::default()),
            next: Ok(next),
            pulls: Ok(None),
            plans: Ok(None),
            unknown: Vec::new(),
            unanswered: Vec::new(),
            instances: Ok(instances),
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let count = self.receipts.fetch_add(1, Ordering::Relaxed);
        let receipt: Receipt =
            format!("{:04x}{count:012x}", self.number).parse().expect("digits make a receipt");
        self.redis.travel().await;
        let act = || {
            let now = self.redis.clock.now();
            let claimed = self.redis.lanes.lock().unwrap().claim(&claim, receipt, now);
            let job = match &claimed {
                Claimed::Refused { .. } => Job::one(Script::RefusedClaim, 0),
                Claimed::Granted(grant) if grant.tasks.is_empty() => {
                    Job::one(Script::EmptyClaim, 0)
                }
                Claimed::Granted(grant) => Job::one(Script::Claim, grant.tasks.len()),
            };
            (claimed, job)
        };
        let claimed = self.redis.server(self.redis.server_of(&claim.lane)).serve(act).await;
        self.redis.travel().await;
        Ok(claimed)
    }

    async fn settle(&self, _: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let mut lanes: BTreeMap<&Lane, Vec<usize>> = BTreeMap::new();
        for (place, settle) in settles.iter().enumerate() {
            lanes.entry(&settle.lane).or_default().push(place);
        }
        let mut answers = vec![Ok(Settled::Unknown); settles.len()];
        self.redis.travel().await;
        for (lane, places) in &lanes {
            for places in places.chunks(SETTLES_A_SCRIPT) {
                let act = || {
                    let now = self.redis.clock.now();
                    let mut kept = self.redis.lanes.lock().unwrap();
                    for &place in places {
                        answers[place] = Ok(kept.settle(&settles[place], now));
                    }
                    ((), Job::one(Script::Settle, places.len()))
                };
                self.redis.server(self.redis.server_of(lane)).serve(act).await;
            }
        }
        self.redis.travel().await;
        for settle in settles.into_iter().filter(|one| one.transition == Transition::Release) {
            let due = self.redis.clock.now();
            self.hint(Hint { lane: settle.lane, due, is_pull: false });
        }
        answers
    }

    async fn extend(
        &self,
        _: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        self.redis.travel().await;
        let act = || {
            let until = self.redis.clock.now() + lease;
            let settled = self.redis.lanes.lock().unwrap().extend((lane, id), receipt, until);
            (settled, Job::one(Script::Settle, 1))
        };
        let settled = self.redis.server(self.redis.server_of(lane)).serve(act).await;
        self.redis.travel().await;
        Ok(settled)
    }

    async fn note(&self, _: Vec<AttemptNote>) -> Result<()> {
        Ok(())
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        self.redis.travel().await;
        let next = self.read_next(&lanes).await;
        self.redis.travel().await;
        Ok(next)
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        // No consumer waits.
        Ok(NextDue { now: self.redis.clock.now(), lanes: vec![None; lanes.len()] })
    }
}
