//! The snapshot, which the sampler publishes.

use std::collections::BTreeMap;
use std::time::Duration;

use delayd_wire::Rate;

use crate::limits::{Allowance, DestinationLimits};
use crate::model::breaker::State;
use crate::model::clock::UnixMillis;
use crate::model::culprit::Culprit;
use crate::model::task::{Destination, Topic};
use crate::store::Counts;

/// The horizons of the forecast, by name.
pub(super) const WITHIN: [(&str, Duration); HORIZONS] = [
    ("1m", Duration::from_secs(60)),
    ("10m", Duration::from_secs(600)),
    ("1h", Duration::from_secs(3_600)),
    ("24h", Duration::from_secs(86_400)),
];
/// The number of horizons.
pub const HORIZONS: usize = 4;

/// The store and this instance at one moment. The parts may be as old as [`Self::oldest`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The store's time of the last sample that was answered; 0 before the first.
    pub at: UnixMillis,
    /// When the oldest part was read.
    pub oldest: UnixMillis,
    /// Whether each lane has been read at least once.
    pub is_complete: bool,
    /// The tasks by state.
    pub tasks: Counts,
    /// The overdue tasks, by culprit in the order of [`Culprit::OF_WAITING`].
    pub overdue: [OverdueTasks; Culprit::OF_WAITING.len()],
    /// The waiting tasks that delayd or the store delays beyond the objective of their topic.
    pub late: u64,
    /// The destinations that tasks wait for, that are configured, or that are held. Without
    /// `@pull`.
    pub destinations: BTreeMap<Destination, SampledDestination>,
    /// How many instances with workers are alive.
    pub workers: usize,
}

impl Snapshot {
    /// The figures of a destination, with its limits; `None` if it is not configured.
    pub(super) fn configure(
        &mut self,
        destination: &Destination,
        allowance: Option<Allowance>,
        limits: &DestinationLimits,
    ) -> &mut SampledDestination {
        self.destinations
            .entry(destination.clone())
            .or_insert_with(|| SampledDestination::new(destination, allowance, limits))
    }
}

/// The overdue tasks of one culprit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverdueTasks {
    /// Their number.
    pub count: u64,
    /// Whether the store stopped counting, so that there may be more.
    pub is_cut: bool,
    /// When the first of them fell due.
    pub oldest: Option<UnixMillis>,
    /// The topic of that task.
    pub topic: Option<Topic>,
}

impl OverdueTasks {
    pub(super) fn add(&mut self, count: u64, is_cut: bool, oldest: UnixMillis, topic: &Topic) {
        self.count += count;
        self.is_cut |= is_cut;
        if self.oldest.is_none_or(|known| oldest < known) {
            self.oldest = Some(oldest);
            self.topic = Some(topic.clone());
        }
    }
}

/// The figures of one destination over all lanes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledDestination {
    /// The tasks that wait, due or not.
    pub waiting: u64,
    /// Those that are overdue.
    pub overdue: u64,
    /// Whether the store stopped counting, so that there may be more of both.
    pub is_cut: bool,
    /// Those that are due within each horizon, overdue ones included.
    pub within: [u64; HORIZONS],
    /// Whether an operator holds it.
    pub is_held: bool,
    /// Whether it is a service or an allowed host.
    pub is_configured: bool,
    /// How many callbacks run at a time on one instance; 0 if it is not configured.
    pub slots: usize,
    /// The rate of one instance, in callbacks per second.
    pub rate: Option<f64>,
    /// Whether it is held, its breaker is not closed, it asked for a wait, or it has no token.
    pub is_blocked: bool,
}

impl SampledDestination {
    /// Figures without tasks, with the limits of a destination; `None` if it is not configured.
    pub fn new(
        destination: &Destination,
        allowance: Option<Allowance>,
        limits: &DestinationLimits,
    ) -> Self {
        let standing = limits.standing(destination, allowance.unwrap_or_default());
        let admits = standing.breaker == State::Closed
            && standing.held_for.is_none()
            && standing.no_token.is_none();
        Self {
            is_blocked: !admits || limits.is_held(destination),
            is_configured: allowance.is_some(),
            slots: allowance.map_or(0, |allowance| limits.slots(allowance)),
            rate: allowance.and_then(|allowance| allowance.rate).map(Rate::per_second),
            ..Self::default()
        }
    }

    pub(super) fn add(
        &mut self,
        waiting: u64,
        overdue: u64,
        is_cut: bool,
        within: &[u64; HORIZONS],
    ) {
        self.is_cut |= is_cut;
        self.waiting += waiting;
        self.overdue += overdue;
        self.within.iter_mut().zip(within).for_each(|(sum, count)| *sum += count);
    }

    /// How many callbacks `workers` instances can make within a span, if one takes `mean` seconds;
    /// infinite as long as no callback has succeeded and no rate is set.
    pub fn capacity(&self, within: Duration, mean: Option<f64>, workers: usize) -> f64 {
        self.per_second(mean, workers, self.is_blocked) * within.as_secs_f64()
    }

    /// The same for each second; 0 while calls are blocked.
    pub fn per_second(&self, mean: Option<f64>, workers: usize, is_blocked: bool) -> f64 {
        if self.slots == 0 || workers == 0 || is_blocked {
            return 0.0;
        }
        let by_slots = mean.map_or(f64::INFINITY, |mean| self.slots as f64 / mean.max(0.000_1));
        self.rate.map_or(by_slots, |rate| rate.min(by_slots)) * workers as f64
    }
}
