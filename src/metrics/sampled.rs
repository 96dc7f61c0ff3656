//! The gauges of the sampler: figures of the whole store, which every instance reports.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::services::{OTHER, ServiceNames};
use crate::model::culprit::Culprit;

pub(super) type Real = Gauge<f64, AtomicU64>;

pub(super) const STATES: [&str; 6] =
    ["scheduled", "leased", "delivered", "dead", "cancelled", "expired"];
/// The horizons of the forecast.
const WITHIN: [&str; 4] = ["1m", "10m", "1h", "24h"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCulprit {
    culprit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfService {
    service: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForecastLabels {
    service: Arc<str>,
    within: &'static str,
}

/// The sampled figures of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceSample {
    /// The tasks that wait.
    pub waiting: u64,
    /// Whether an operator holds the service.
    pub is_held: bool,
    /// Whether the service can be called.
    pub is_configured: bool,
    /// The tasks that are due within each horizon.
    pub forecast: [u64; WITHIN.len()],
    /// The callbacks that are possible within each horizon.
    pub capacity: [f64; WITHIN.len()],
}

/// The gauges of the sampler.
#[derive(Debug)]
pub struct SampledMetrics {
    tasks: [Gauge; STATES.len()],
    /// Of each of [`Culprit::OF_WAITING`].
    overdue: [Gauge; Culprit::OF_WAITING.len()],
    oldest: [Real; Culprit::OF_WAITING.len()],
    late: Gauge,
    waiting: Family<OfService, Gauge>,
    held: Family<OfService, Gauge>,
    configured: Family<OfService, Gauge>,
    forecast: Family<ForecastLabels, Gauge>,
    capacity: Family<ForecastLabels, Real>,
    timestamp: Real,
    oldest_timestamp: Real,
    names: ServiceNames,
    /// The services that have series.
    shown: Mutex<Vec<Arc<str>>>,
}

impl SampledMetrics {
    /// `names` are the labels of services; other metrics use the same.
    pub(super) fn register(registry: &mut Registry, names: ServiceNames) -> Self {
        let tasks = Family::<StateLabels, Gauge>::default();
        let overdue = Family::<OfCulprit, Gauge>::default();
        let oldest = Family::<OfCulprit, Real>::default();
        let culprits = Culprit::OF_WAITING.map(|culprit| OfCulprit { culprit: culprit.as_str() });
        let metrics = Self {
            tasks: STATES.map(|state| tasks.get_or_create(&StateLabels { state }).clone()),
            overdue: culprits.clone().map(|culprit| overdue.get_or_create(&culprit).clone()),
            oldest: culprits.map(|culprit| oldest.get_or_create(&culprit).clone()),
            late: Gauge::default(),
            waiting: Family::default(),
            held: Family::default(),
            configured: Family::default(),
            forecast: Family::default(),
            capacity: Family::default(),
            timestamp: Real::default(),
            oldest_timestamp: Real::default(),
            names,
            shown: Mutex::default(),
        };
        registry.register("store_tasks", "Tasks in the store, by state", tasks);
        registry.register(
            "store_overdue_tasks",
            "Waiting tasks whose due time has passed, by who delays them; the embedded store \
             counts at most 5,000 of a lane and destination, and 50,000 in all",
            overdue,
        );
        registry.register_with_unit(
            "store_oldest_overdue_timestamp",
            "Unix time at which the oldest overdue task fell due, by who delays it; 0 if there is \
             none",
            Unit::Seconds,
            oldest,
        );
        registry.register(
            "store_late_tasks",
            "Waiting tasks that delayd or the store delays beyond the objective of their topic; \
             delayd_objective_tasks_total counts them as bad when they are delivered. While a \
             server is away, the last count, and at least 1 for each lane and destination whose \
             earliest task is late",
            metrics.late.clone(),
        );
        registry.register(
            "store_destination_waiting",
            "Tasks that wait for the service, due or not; of each lane, the 16 destinations with \
             the earliest tasks are counted",
            metrics.waiting.clone(),
        );
        registry.register(
            "store_destination_held",
            "1 if an operator holds the service, otherwise 0; other stands for all services \
             without a label of their own, and is 1 if at least one of them is held",
            metrics.held.clone(),
        );
        registry.register(
            "store_destination_configured",
            "1 if the service can be called, 0 if tasks wait for it that cannot be delivered",
            metrics.configured.clone(),
        );
        registry.register(
            "store_forecast_tasks",
            "Waiting tasks that fall due within this time from now, overdue ones included; \
             counted about every ten seconds with up to 512 lanes, and less often with more",
            metrics.forecast.clone(),
        );
        registry.register(
            "store_forecast_capacity_tasks",
            "Callbacks that all living instances can make within the time, by the slots, the rate \
             and the mean duration of the successful callbacks so far; 0 while the service is held \
             or its circuit breaker is not closed; infinite before the first success",
            metrics.capacity.clone(),
        );
        registry.register_with_unit(
            "sampler_timestamp",
            "Unix time of the last sample that the store answered; 0 before the first. A sample \
             reads at most 512 lanes",
            Unit::Seconds,
            metrics.timestamp.clone(),
        );
        registry.register_with_unit(
            "sampler_oldest_timestamp",
            "Unix time at which the oldest of the figures in delayd_store_* was read: lanes are \
             read in rotation, and those of a server that is away keep their last figures",
            Unit::Seconds,
            metrics.oldest_timestamp.clone(),
        );
        metrics.set_services(BTreeMap::from([(
            OTHER.into(),
            ServiceSample { is_configured: true, ..ServiceSample::default() },
        )]));
        metrics
    }

    /// The label of a service: its name, or `other`.
    pub fn label(&self, service: &str) -> Arc<str> {
        self.names.label(service).unwrap_or_else(|| OTHER.into())
    }

    /// Sets the store's time of the last sample, and of the oldest figure, in Unix milliseconds.
    pub fn set_timestamps(&self, last_ms: i64, oldest_ms: i64) {
        self.timestamp.set(seconds(last_ms));
        self.oldest_timestamp.set(seconds(oldest_ms));
    }

    /// Sets the numbers of tasks that are scheduled, leased, delivered, dead, cancelled and
    /// expired.
    pub fn set_tasks(&self, counts: [u64; STATES.len()]) {
        for (gauge, count) in self.tasks.iter().zip(counts) {
            gauge.set(whole(count));
        }
    }

    /// Sets the number of waiting tasks that miss the objective because of delayd or the store.
    pub fn set_late(&self, count: u64) {
        self.late.set(whole(count));
    }

    /// Sets the overdue tasks of one of [`Culprit::OF_WAITING`], and when the oldest fell due, in
    /// Unix milliseconds.
    pub fn set_overdue(&self, culprit: Culprit, count: u64, oldest_ms: i64) {
        self.overdue[culprit as usize].set(whole(count));
        self.oldest[culprit as usize].set(seconds(oldest_ms));
    }

    /// Sets the figures of all services, by label. Removes the series of other services, but not
    /// that of `other`.
    pub fn set_services(&self, mut services: BTreeMap<Arc<str>, ServiceSample>) {
        services
            .entry(OTHER.into())
            .or_insert_with(|| ServiceSample { is_configured: true, ..ServiceSample::default() });
        for (service, sample) in &services {
            let label = OfService { service: service.clone() };
            self.waiting.get_or_create(&label).set(whole(sample.waiting));
            self.held.get_or_create(&label).set(sample.is_held.into());
            self.configured.get_or_create(&label).set(sample.is_configured.into());
            for (at, within) in WITHIN.into_iter().enumerate() {
                let label = ForecastLabels { service: service.clone(), within };
                self.forecast.get_or_create(&label).set(whole(sample.forecast[at]));
                self.capacity.get_or_create(&label).set(sample.capacity[at]);
            }
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for service in shown.drain(..).filter(|service| !services.contains_key(service)) {
            let label = OfService { service: service.clone() };
            for family in [&self.waiting, &self.held, &self.configured] {
                family.remove(&label);
            }
            for within in WITHIN {
                let label = ForecastLabels { service: service.clone(), within };
                self.forecast.remove(&label);
                self.capacity.remove(&label);
            }
        }
        shown.extend(services.into_keys());
    }
}

pub(super) fn seconds(at_ms: i64) -> f64 {
    at_ms as f64 / 1_000.0
}

pub(super) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
