//! The sampler: counts the store once a second, for all viewers.
//!
//! `GET /metrics` and `/delay/series` read what the sampler found, and never the store. So ten
//! viewers cost the store as much as one. A sample counts at most 512 lanes, in one pipeline per
//! server; more lanes are sampled in rotation. While a sample runs, no other one starts. ADR 20 has
//! the reasons.
//!
//! - `figures` keeps the last counts of each lane, and selects the next lanes.
//! - `culprit` finds who delays overdue tasks.
//! - `gauges` writes the metrics of the store.
//! - `history` keeps the figures of the last day.
//! - `trends` keeps the waiting tasks of each topic over half an hour.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::callback::Services;
use crate::instances::Instances;
use crate::limits::{Allowance, DestinationLimits, TopicLimits};
use crate::metrics::{Metrics, TopicSample, Totals};
use crate::model::clock::UnixMillis;
use crate::model::culprit::Culprit;
use crate::model::task::{Lane, Topic};
use crate::store::{self, AnyStore, Counts, Delivery, Registered, SampleQuery, Sampling};
use crate::topic::Registry;

mod culprit;
mod figures;
mod gauges;
mod history;
mod snapshot;
mod trends;

use culprit::CulpritFinder;
use figures::{AllLaneFigures, spans};
pub use history::{FIGURES, FigureHistory, Point};
pub use snapshot::{HORIZONS, OverdueTasks, SampledDestination, Snapshot};
pub use trends::{STEP as TREND_STEP, Trends};

/// The most topics with figures of their own.
const TOPICS: usize = 1_000;

/// From this duration of a sample on, the store counts as slow: it is then the culprit of tasks
/// that nothing else delays.
const SLOW: Duration = Duration::from_millis(500);

/// The parts of the program that the sampler reads and writes.
#[derive(Debug)]
pub struct Parts<S = AnyStore> {
    /// The store.
    pub store: Arc<S>,
    /// The topics.
    pub topics: Arc<Registry<S>>,
    /// The services that are called.
    pub services: Arc<Services>,
    /// The limits of destinations.
    pub limits: DestinationLimits,
    /// The limits of topics, which the workers of this instance use.
    pub topic_limits: TopicLimits,
    /// The instances.
    pub instances: Arc<Instances>,
    /// The metrics, which it sets.
    pub metrics: Arc<Metrics>,
}

/// The settings of the sampler.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Whether this instance makes callbacks. Only then it knows why a destination is not called.
    pub has_workers: bool,
    /// The time between two samples. It is 1 s; only tests change it.
    pub every: Duration,
}

/// The running sampler of this instance. Dropping it stops it.
#[derive(Debug)]
pub struct Sampler {
    task: AbortHandle,
    sampled: Sampled,
}

/// The results of the sampler. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sampled {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    history: Arc<Mutex<FigureHistory>>,
    trends: Arc<Mutex<Trends>>,
    figures: Arc<Mutex<AllLaneFigures>>,
}

impl Default for Sampled {
    /// The results without a sampler: empty.
    fn default() -> Self {
        Self {
            snapshots: watch::channel(Arc::default()).1,
            history: Arc::default(),
            trends: Arc::default(),
            figures: Arc::default(),
        }
    }
}

#[cfg(test)]
impl Sampled {
    /// The results of a sampler that a test replaces.
    pub(crate) fn sent_by_test() -> (watch::Sender<Arc<Snapshot>>, Self) {
        let (sender, snapshots) = watch::channel(Arc::default());
        (sender, Self { snapshots, ..Self::default() })
    }
}

impl Sampled {
    /// The last snapshot, and those to come.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// The figures of the first 1,000 topics by name, and how many more there are.
    pub fn topics(&self) -> (Vec<TopicSample>, usize) {
        lock(&self.figures).topics(TOPICS)
    }

    /// The last counts of each topic. A topic that was not counted yet is missing.
    pub fn counts_by_topic(&self) -> HashMap<Topic, Counts> {
        lock(&self.figures).counts_by_topic()
    }

    /// The figures of the last day. The sampler waits until the guard is dropped.
    pub fn history(&self) -> MutexGuard<'_, FigureHistory> {
        lock(&self.history)
    }

    /// The waiting tasks of each topic over time. The sampler waits until the guard is dropped.
    pub fn trends(&self) -> MutexGuard<'_, Trends> {
        lock(&self.trends)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sampler {
    /// Starts the sampler. The first sample is taken at once.
    pub fn start<S: Sampling + Delivery>(parts: Parts<S>, params: Params) -> Self {
        let (publish, snapshots) = watch::channel(Arc::default());
        let sampled = Sampled { snapshots, ..Sampled::default() };
        let task = tokio::spawn(run(parts, params, publish, sampled.clone())).abort_handle();
        Self { task, sampled }
    }

    /// Its results.
    pub fn sampled(&self) -> &Sampled {
        &self.sampled
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run<S: Sampling + Delivery>(
    parts: Parts<S>,
    params: Params,
    publish: watch::Sender<Arc<Snapshot>>,
    sampled: Sampled,
) {
    let mut ticks = tokio::time::interval(params.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut state = SamplerState { figures: sampled.figures.clone(), ..SamplerState::default() };
    loop {
        ticks.tick().await;
        state.sample(&parts).await;
        let snapshot = state.snapshot(&parts, params);
        gauges::set(&parts.metrics, &snapshot);
        sampled.history().note(state.now(), values(&parts, &snapshot, state.now()));
        if snapshot.is_complete && sampled.trends().is_due(state.now()) {
            let counts = sampled.counts_by_topic();
            sampled.trends().note(state.now(), counts);
        }
        publish.send_replace(Arc::new(snapshot));
    }
}

/// The figures of one moment, for the history.
fn values<S>(parts: &Parts<S>, snapshot: &Snapshot, now: UnixMillis) -> history::Values {
    let Totals { added, calls, failed_calls, lateness } = parts.metrics.totals();
    let lateness = lateness.map(|sum| sum.as_millis() as u64);
    let overdue = &snapshot.overdue;
    let oldest = overdue.iter().filter_map(|overdue| overdue.oldest).min();
    let own = parts.instances.own();
    let every = Allowance { concurrency: usize::MAX, rate: None };
    [
        added,
        calls,
        failed_calls,
        lateness[0],
        lateness[1],
        lateness[2],
        lateness[3],
        lateness[4],
        lateness[5],
        lateness[6],
        snapshot.tasks.scheduled,
        snapshot.tasks.leased,
        snapshot.tasks.dead,
        overdue[0].count,
        overdue[1].count,
        overdue[2].count,
        overdue[3].count,
        overdue[4].count,
        oldest.map_or(0, |oldest| now.since(oldest).as_millis() as u64),
        parts.limits.in_flight() as u64,
        parts.limits.slots(every) as u64,
        (own.cpu * 1_000.0) as u64,
        own.memory,
    ]
}

/// How long tasks of a topic may be overdue before they count as late.
fn late_after<S>(parts: &Parts<S>, topic: &Topic) -> Duration {
    let own = parts.topics.policy_of(topic).lateness_objective;
    own.map_or_else(|| parts.metrics.lateness.objective(), |own| own.0)
}

/// What the sampler knows of the store.
#[derive(Debug, Default)]
struct SamplerState {
    figures: Arc<Mutex<AllLaneFigures>>,
    /// The store's time in the last answer, and when that came.
    read: Option<(UnixMillis, Instant)>,
    /// The store's time in the first answer.
    first_read: Option<UnixMillis>,
    /// The servers that did not answer.
    away: HashSet<u64>,
    is_slow: bool,
}

impl SamplerState {
    async fn sample<S: Sampling + Delivery>(&mut self, parts: &Parts<S>) {
        let all = || -> Vec<Lane> {
            parts.topics.known().iter().flat_map(|known| known.entry.lanes()).collect()
        };
        let next = lock(&self.figures).next(all);
        let within = spans(next.with_forecast);
        let asked = Instant::now();
        let lanes = next.lanes.clone();
        let late_after = lanes.iter().map(|lane| late_after(parts, &lane.topic)).collect();
        let query = SampleQuery { lanes, late_after, within, ..SampleQuery::default() };
        let answers = match parts.store.sample(query).await {
            Ok(store::SampleAnswer { now, lanes }) => {
                self.read = Some((now, Instant::now()));
                self.first_read.get_or_insert(now);
                lanes
            }
            Err(error) => {
                tracing::debug!(%error, "Could not sample the store");
                vec![None; next.lanes.len()]
            }
        };
        for (lane, answer) in next.lanes.iter().zip(&answers) {
            let server = parts.store.server_of(lane);
            match answer {
                Some(_) => self.away.remove(&server),
                None => self.away.insert(server),
            };
        }
        // Servers of a cluster come and go with their addresses.
        if !self.away.is_empty() {
            let present: HashSet<u64> =
                all().iter().map(|lane| parts.store.server_of(lane)).collect();
            self.away.retain(|server| present.contains(server));
        }
        lock(&self.figures).take_in(self.now(), next, answers);
        self.is_slow = asked.elapsed() >= SLOW;
    }

    /// The store's now, by its last answer.
    fn now(&self) -> UnixMillis {
        self.read.map_or(UnixMillis(0), |(now, at)| now + at.elapsed())
    }

    /// The culprit of tasks that nothing blocks. `None` if this instance has no workers, and
    /// another living one has some or no heartbeat is known yet.
    fn unblocked(&self, instances: &Instances, params: Params) -> Option<Culprit> {
        let living = instances.living();
        if !params.has_workers
            && (living.is_empty() || living.iter().any(|instance| instance.has_workers))
        {
            return None;
        }
        Some(if self.is_slow { Culprit::Store } else { Culprit::Delayd })
    }

    fn snapshot<S: Delivery>(&self, parts: &Parts<S>, params: Params) -> Snapshot {
        let Parts { topics, services, limits, topic_limits, instances, .. } = parts;
        let topics: Vec<Registered> = topics.known();
        let unblocked = self.unblocked(instances, params);
        let mut finder = CulpritFinder::new(services, limits, topic_limits, &topics, unblocked);
        let (now, known) = (self.now(), lock(&self.figures));
        let mut snapshot = Snapshot {
            at: self.read.map_or(UnixMillis(0), |(now, _)| now),
            is_complete: self.read.is_some() && known.is_complete(),
            workers: instances.living().iter().filter(|instance| instance.has_workers).count(),
            ..Snapshot::default()
        };
        snapshot.oldest = snapshot.at;
        for service in services.all() {
            snapshot.configure(service.name(), Some(service.allowance()), limits);
        }
        for held in limits.held() {
            let allowance = services.get(held.as_str()).map(|service| service.allowance());
            snapshot.configure(&held, allowance, limits).is_held = true;
        }
        for (lane, figures) in known.lanes() {
            snapshot.oldest = snapshot.oldest.min(figures.read);
            snapshot.tasks.add(&figures.counts);
            let is_away = !self.away.is_empty() && self.away.contains(&parts.store.server_of(lane));
            for schedule in &figures.schedules {
                let overdue = if is_away { schedule.overdue_by(now) } else { schedule.overdue };
                if overdue > 0
                    && let Some(culprit) =
                        finder.culprit(&lane.topic, &schedule.destination, is_away)
                {
                    let after = late_after(parts, &lane.topic);
                    // What delayed the tasks before this instance started is unknown.
                    let may_know = self.first_read.is_some_and(|first| first + after <= now);
                    if may_know && matches!(culprit, Culprit::Delayd | Culprit::Store) {
                        snapshot.late += match is_away {
                            true => schedule.late_by(now, after),
                            false => schedule.late,
                        };
                    }
                    snapshot.overdue[culprit as usize].add(
                        overdue,
                        schedule.is_cut,
                        schedule.earliest,
                        &lane.topic,
                    );
                }
                if schedule.destination.is_pull() {
                    continue;
                }
                if !snapshot.destinations.contains_key(&schedule.destination) {
                    let allowance = services
                        .get(schedule.destination.as_str())
                        .map(|service| service.allowance());
                    snapshot.configure(&schedule.destination, allowance, limits);
                }
                if let Some(destination) = snapshot.destinations.get_mut(&schedule.destination) {
                    let is_cut = schedule.is_cut;
                    destination.add(schedule.waiting, overdue, is_cut, &schedule.within);
                }
            }
        }
        snapshot
    }
}

#[cfg(test)]
mod tests;
