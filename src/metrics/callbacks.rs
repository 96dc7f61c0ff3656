//! Callbacks: what they came to, how long they took, and what their breakers did.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use delayd_wire::BreakerState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::label_value;
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
struct Attempt {
    service: Arc<str>,
    outcome: AttemptOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Transition {
    service: Arc<str>,
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Service {
    service: Arc<str>,
}

/// The families with one member for each service.
#[derive(Debug)]
struct Families {
    attempts: Family<Attempt, Counter>,
    duration: Family<Service, Histogram, fn() -> Histogram>,
    transitions: Family<Transition, Counter>,
    overflow: Counter,
}

impl Families {
    fn of(&self, service: &Arc<str>, overflow: Option<Counter>) -> Arc<ServiceMetrics> {
        let attempts = |&outcome: &AttemptOutcome| {
            self.attempts.get_or_create_owned(&Attempt { service: service.clone(), outcome })
        };
        let transitions = |state: BreakerState| {
            let to = state.as_str();
            self.transitions.get_or_create_owned(&Transition { service: service.clone(), to })
        };
        Arc::new(ServiceMetrics {
            attempts: AttemptOutcome::ALL.iter().map(attempts).collect(),
            duration: self.duration.get_or_create_owned(&Service { service: service.clone() }),
            transitions: BreakerState::ALL.map(transitions),
            overflow,
        })
    }
}

/// The metrics of one service, or of all that share the label "other".
#[derive(Debug)]
pub struct ServiceMetrics {
    attempts: Vec<Counter>,
    duration: Histogram,
    transitions: [Counter; BreakerState::ALL.len()],
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
    }

    /// The circuit breaker changed to this state.
    pub fn breaker_changed(&self, to: BreakerState) {
        self.transitions[to as usize].inc();
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
            "label_overflow",
            "Callbacks to services that have no label of their own: 40 services have one, and the \
             others share \"other\"",
            families.overflow.clone(),
        );
        let other = families.of(&OTHER.into(), Some(families.overflow.clone()));
        Self { families, names, services: RwLock::default(), other }
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
