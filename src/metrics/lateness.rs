//! How late the first attempt of each task begins, and who delayed it.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use delayd_wire::{Span, Way};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{durations, observe};
use crate::model::culprit::Culprit;
use crate::model::lateness::{Lateness, TopicsDelays};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LateLabels {
    mode: &'static str,
    culprit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Judged {
    result: &'static str,
}

type Seconds = Counter<f64, AtomicU64>;

/// The metrics of one mode and culprit.
#[derive(Debug)]
struct Handles {
    lateness: Histogram,
    seconds: Seconds,
}

/// The metrics of lateness and of the objective.
#[derive(Debug)]
pub struct LatenessMetrics {
    push: [Handles; Culprit::ALL.len()],
    pull: [Handles; Culprit::ALL.len()],
    good: Counter,
    bad: Counter,
    objective: Gauge<f64, AtomicU64>,
    target: Gauge<f64, AtomicU64>,
    /// What delays the tasks of many lanes.
    pub delays: TopicsDelays,
}

impl LatenessMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let lateness =
            Family::<LateLabels, Histogram, fn() -> Histogram>::new_with_constructor(durations);
        let seconds = Family::<LateLabels, Seconds>::default();
        let judged = Family::<Judged, Counter>::default();
        registry.register_with_unit(
            "task_lateness",
            "Time from the due time of a task to the start of its first callback, or until a \
             consumer has it, by mode and by the culprit of its largest part; a task that was due \
             before it was added is due when it was added",
            Unit::Seconds,
            lateness.clone(),
        );
        registry.register_with_unit(
            "lateness",
            "Sum of the lateness in delayd_task_lateness_seconds, split by culprit",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register(
            "objective_tasks",
            "Tasks by whether they met the objective: a task is bad if the parts of delayd and of \
             the store in its lateness exceed the objective of its topic",
            judged.clone(),
        );
        let (objective, target) = (Gauge::default(), Gauge::default());
        registry.register_with_unit(
            "objective_lateness",
            "The objective of topics without one of their own (objective.lateness)",
            Unit::Seconds,
            objective.clone(),
        );
        registry.register(
            "objective_ratio",
            "The share of tasks that should meet the objective (objective.target)",
            target.clone(),
        );
        objective.set(1.0);
        target.set(0.999);
        let handles = |way: Way| {
            Culprit::ALL.map(|culprit| {
                let late = LateLabels { mode: way.as_str(), culprit: culprit.as_str() };
                Handles {
                    lateness: lateness.get_or_create(&late).clone(),
                    seconds: seconds.get_or_create(&late).clone(),
                }
            })
        };
        let counter = |result| judged.get_or_create(&Judged { result }).clone();
        Self {
            push: handles(Way::Push),
            pull: handles(Way::Pull),
            good: counter("good"),
            bad: counter("bad"),
            objective,
            target,
            delays: TopicsDelays::default(),
        }
    }

    /// Sets the objective of topics without one of their own, and the share of tasks that should
    /// meet it.
    pub fn set_objective(&self, lateness: Duration, target: f64) {
        self.objective.set(lateness.as_secs_f64());
        self.target.set(target);
    }

    /// The objective of topics without one of their own.
    pub fn objective(&self) -> Duration {
        Duration::from_secs_f64(self.objective.get())
    }

    /// The share of tasks that should meet the objective.
    pub fn target(&self) -> f64 {
        self.target.get()
    }

    /// The numbers of tasks so far that met the objective, and that missed it.
    pub fn judged(&self) -> (u64, u64) {
        (self.good.get(), self.bad.get())
    }

    /// Observes the lateness of a task at its first hand-out. `own` is its topic's own objective.
    pub fn observe(&self, way: Way, lateness: &Lateness, own: Option<Span>) {
        let handles = match way {
            Way::Push => &self.push,
            Way::Pull => &self.pull,
        };
        observe(&handles[lateness.culprit() as usize].lateness, lateness.total());
        for (handles, culprit) in handles.iter().zip(Culprit::ALL) {
            let part = lateness.part(culprit);
            if !part.is_zero() {
                handles.seconds.inc_by(part.as_secs_f64());
            }
        }
        let objective = own.map_or_else(|| self.objective(), |own| own.0);
        self.judge(lateness.own() <= objective, 1);
    }

    /// The lateness of all tasks so far, by culprit in the order of [`Culprit::ALL`].
    pub(super) fn in_all(&self) -> [Duration; Culprit::ALL.len()] {
        let seconds = |at: usize| self.push[at].seconds.get() + self.pull[at].seconds.get();
        std::array::from_fn(|at| Duration::from_secs_f64(seconds(at).max(0.0)))
    }

    /// Counts tasks that met the objective, or that missed it.
    pub fn judge(&self, is_good: bool, tasks: u64) {
        let counter = if is_good { &self.good } else { &self.bad };
        counter.inc_by(tasks);
    }
}
