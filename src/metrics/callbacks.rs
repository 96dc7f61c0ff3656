//! Callbacks: what they came to, how long they took, and what their breakers did.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use delayd_wire::BreakerState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::label_value;
use super::recent::{Quantiles, RecentDurations, quantiles};
use super::services::{OTHER, ServiceNames};
use super::{durations, observe};

label_value! {
    /// The outcome of an attempt.
    pub AttemptOutcome {
        /// The receiver took the task.
        Delivered = "delivered",
        /// The receiver took it, and acknowledges it later.
        Accepted = "accepted",
        /// The receiver failed: no answer, 5xx or 429.
        ReceiverFailed = "receiver_failed",
        /// The receiver answered, and did not take this task.
        Refused = "refused",
        /// The receiver refused this task for good.
        Final = "final",
        /// delayd did not make the call.
        NotCalled = "not_called",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    service: Arc<str>,
    outcome: AttemptOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransitionLabels {
    service: Arc<str>,
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    service: Arc<str>,
}

/// The families with one member for each service.
#[derive(Debug)]
struct Families {
    attempts: Family<AttemptLabels, Counter>,
    duration: Family<ServiceLabels, Histogram, fn() -> Histogram>,
    transitions: Family<TransitionLabels, Counter>,
    ambiguous: Family<ServiceLabels, Counter>,
    overflow: Counter,
}

impl Families {
    fn of(&self, service: &Arc<str>, overflow: Option<Counter>) -> Arc<ServiceMetrics> {
        let attempts = |&outcome: &AttemptOutcome| {
            self.attempts.get_or_create_owned(&AttemptLabels { service: service.clone(), outcome })
        };
        let transitions = |state: BreakerState| {
            let to = state.as_str();
            self.transitions.get_or_create_owned(&TransitionLabels { service: service.clone(), to })
        };
        Arc::new(ServiceMetrics {
            attempts: AttemptOutcome::ALL.iter().map(attempts).collect(),
            duration: self
                .duration
                .get_or_create_owned(&ServiceLabels { service: service.clone() }),
            count: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            lateness: RecentDurations::default(),
            transitions: BreakerState::ALL.map(transitions),
            ambiguous: self
                .ambiguous
                .get_or_create_owned(&ServiceLabels { service: service.clone() }),
            overflow,
        })
    }
}

/// The metrics of one service, or of all that share the label "other".
#[derive(Debug)]
pub struct ServiceMetrics {
    attempts: Vec<Counter>,
    duration: Histogram,
    /// The number of successful callbacks, and their durations in microseconds, for a mean.
    count: AtomicU64,
    micros: AtomicU64,
    /// How late first callbacks began, apart from what operators delayed them.
    lateness: RecentDurations,
    transitions: [Counter; BreakerState::ALL.len()],
    ambiguous: Counter,
    overflow: Option<Counter>,
}

impl ServiceMetrics {
    /// An attempt ended after this time.
    pub fn attempted(&self, outcome: AttemptOutcome, took: Duration) {
        self.attempts[outcome as usize].inc();
        observe(&self.duration, took);
        if let Some(overflow) = &self.overflow {
            overflow.inc();
        }
        // A receiver in trouble fails fast, and that would raise the capacity.
        if matches!(outcome, AttemptOutcome::Delivered | AttemptOutcome::Accepted) {
            self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An answer counted as success, though a field in it says otherwise.
    pub fn was_ambiguous(&self) {
        self.ambiguous.inc();
    }

    /// A first callback begins so late, of a task that was not due before the start. What operators
    /// delayed it does not count.
    pub fn began(&self, late: Duration) {
        self.lateness.note(late);
    }

    /// The circuit breaker changed to this state.
    pub fn breaker_changed(&self, to: BreakerState) {
        self.transitions[to as usize].inc();
    }

    /// The mean duration of a successful callback in seconds; `None` before the first.
    fn mean_seconds(&self) -> Option<f64> {
        let count = self.count.load(Ordering::Relaxed);
        let micros = self.micros.load(Ordering::Relaxed) as f64;
        (count > 0).then(|| micros / count as f64 / 1e6)
    }
}

/// What is counted where tasks are called back.
#[derive(Debug)]
pub struct CallbackMetrics {
    families: Families,
    names: ServiceNames,
    services: RwLock<HashMap<Arc<str>, Arc<ServiceMetrics>>>,
    other: Arc<ServiceMetrics>,
}

impl CallbackMetrics {
    pub(super) fn register(registry: &mut Registry, names: ServiceNames) -> Self {
        let families = Families {
            attempts: Family::default(),
            duration: Family::new_with_constructor(durations),
            transitions: Family::default(),
            ambiguous: Family::default(),
            overflow: Counter::default(),
        };
        registry.register(
            "attempts",
            "Callbacks that ended, by service and outcome",
            families.attempts.clone(),
        );
        registry.register_with_unit(
            "callback_duration",
            "Time from the start of a callback to the end of its answer",
            Unit::Seconds,
            families.duration.clone(),
        );
        registry.register(
            "destination_transitions",
            "Changes of the service's circuit breaker, by its new state",
            families.transitions.clone(),
        );
        registry.register(
            "ambiguous_success",
            "Answers that counted as success, though their code, errno, errcode or success usually \
             says that a call failed; services.….success says what counts",
            families.ambiguous.clone(),
        );
        registry.register(
            "label_overflow",
            "Callbacks to services that have no label of their own: 40 services have one, and the \
             others share \"other\"",
            families.overflow.clone(),
        );
        let other = families.of(&OTHER.into(), Some(families.overflow.clone()));
        Self { families, names, services: RwLock::default(), other }
    }

    /// How many callbacks ended, and how many of them failed.
    pub(super) fn in_all(&self) -> (u64, u64) {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        let all = services.values().chain(std::iter::once(&self.other));
        let counts = all.flat_map(|service| AttemptOutcome::ALL.iter().zip(&service.attempts));
        counts.fold((0, 0), |(calls, failed), (outcome, counter)| match outcome {
            AttemptOutcome::NotCalled => (calls, failed),
            AttemptOutcome::Delivered | AttemptOutcome::Accepted => (calls + counter.get(), failed),
            _ => (calls + counter.get(), failed + counter.get()),
        })
    }

    /// How late the first callbacks of the last minute began, of the meant services that have a
    /// label of their own.
    pub fn lateness_of(&self, is_meant: impl Fn(&str) -> bool) -> Quantiles {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        let meant = services.iter().filter(|(name, _)| is_meant(name));
        quantiles(meant.map(|(_, service)| &service.lateness))
    }

    /// The mean duration of a successful callback to the services with this label, in seconds.
    pub fn mean_seconds(&self, label: &str) -> Option<f64> {
        if label == OTHER {
            return self.other.mean_seconds();
        }
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        services.get(label)?.mean_seconds()
    }

    /// The metrics of a service, with its own label as long as there are labels left.
    pub fn service(&self, service: &str) -> Arc<ServiceMetrics> {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = services.get(service) {
            return metrics.clone();
        }
        drop(services);
        let Some(name) = self.names.label(service) else { return self.other.clone() };
        let metrics = self.families.of(&name, None);
        let mut services = self.services.write().unwrap_or_else(PoisonError::into_inner);
        services.entry(name).or_insert(metrics).clone()
    }
}
