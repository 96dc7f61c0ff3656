//! Callbacks: what they came to, and how long they took.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

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
struct Service {
    service: Arc<str>,
}

type Durations = Family<Service, Histogram, fn() -> Histogram>;

/// The metrics of one service.
#[derive(Debug)]
pub struct ServiceMetrics {
    attempts: Vec<Counter>,
    duration: Histogram,
}

impl ServiceMetrics {
    fn new(attempts: &Family<Attempt, Counter>, duration: &Durations, service: Arc<str>) -> Self {
        let counter = |&outcome: &AttemptOutcome| {
            attempts.get_or_create(&Attempt { service: service.clone(), outcome }).clone()
        };
        Self {
            attempts: AttemptOutcome::ALL.iter().map(counter).collect(),
            duration: duration.get_or_create(&Service { service: service.clone() }).clone(),
        }
    }

    /// An attempt ended after this time.
    pub fn attempted(&self, outcome: AttemptOutcome, took: Duration) {
        self.attempts[outcome as usize].inc();
        observe(&self.duration, took);
    }
}

/// What is counted where tasks are called back.
#[derive(Debug)]
pub struct CallbackMetrics {
    attempts: Family<Attempt, Counter>,
    duration: Durations,
    overflow: Counter,
    names: ServiceNames,
    services: RwLock<HashMap<Arc<str>, Arc<ServiceMetrics>>>,
    other: Arc<ServiceMetrics>,
}

impl CallbackMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let attempts = Family::default();
        let duration = Durations::new_with_constructor(durations);
        let overflow = Counter::default();
        registry.register(
            "attempts",
            "Callbacks that ended, by service and outcome",
            attempts.clone(),
        );
        registry.register_with_unit(
            "callback_duration",
            "Time from the start of a callback to the end of its answer",
            Unit::Seconds,
            duration.clone(),
        );
        registry.register(
            "label_overflow",
            "Callbacks to services that have no label of their own: 40 services have one, and the \
             others share \"other\"",
            overflow.clone(),
        );
        let other = Arc::new(ServiceMetrics::new(&attempts, &duration, OTHER.into()));
        let (names, services) = (ServiceNames::default(), RwLock::default());
        Self { attempts, duration, overflow, names, services, other }
    }

    /// The metrics of a service, with its own label as long as there are labels left.
    pub fn service(&self, service: &str) -> Arc<ServiceMetrics> {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = services.get(service) {
            return metrics.clone();
        }
        drop(services);
        let Some(name) = self.names.label(service) else {
            self.overflow.inc();
            return self.other.clone();
        };
        let metrics = ServiceMetrics::new(&self.attempts, &self.duration, name.clone());
        let mut services = self.services.write().unwrap_or_else(PoisonError::into_inner);
        services.entry(name).or_insert_with(|| Arc::new(metrics)).clone()
    }
}
