//! The metrics of the limits of calls: slots, windows and circuit breakers.

use std::fmt;
use std::sync::Arc;

use delayd_wire::BreakerState;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::readings::Readings;
use super::services::{OTHER, ServiceNames};

/// The figures of one destination, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestinationGauges {
    /// The taken slots.
    pub in_flight: usize,
    /// The most slots that may be taken now.
    pub window: usize,
    /// The number of destinations with each state of the breaker, in the order of
    /// [`BreakerState::ALL`].
    pub breakers: [usize; BreakerState::ALL.len()],
}

/// The figures of all destinations.
#[derive(Clone, Debug, Default)]
pub struct LimitFigures {
    /// The taken slots in total.
    pub in_flight: usize,
    /// The most slots in total.
    pub limit: usize,
    /// The figures of each service with a label of its own, in the order of the request.
    pub services: Vec<DestinationGauges>,
    /// The sums over all other destinations.
    pub others: DestinationGauges,
}

/// Returns the figures of the named services, and the sums over all others.
type ReadFigures = Arc<dyn Fn(&[Arc<str>]) -> LimitFigures + Send + Sync>;

/// The gauges of the limits of calls. Each scrape reads them from the limits.
#[derive(Clone, Debug)]
pub struct DestinationMetrics {
    read: Readings<ReadFigures>,
    names: ServiceNames,
}

impl DestinationMetrics {
    pub(super) fn register(registry: &mut Registry, names: ServiceNames) -> Self {
        let metrics = Self { read: Readings::default(), names };
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Sets the function that reads the figures. Its argument is the names of the services with a
    /// label of their own.
    pub fn read_by(&self, read: impl Fn(&[Arc<str>]) -> LimitFigures + Send + Sync + 'static) {
        let read: ReadFigures = Arc::new(read);
        self.read.read_by(move || Arc::clone(&read));
    }
}

impl Collector for DestinationMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let names = self.names.all();
        let mut figures = self.read.now().map(|read| read(&names)).unwrap_or_default();
        figures.services.resize(names.len(), DestinationGauges::default());
        let mut gauge = |name, help, value: usize| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as u64).encode(metric)
        };
        gauge("calls_in_flight", "Slots for callbacks that are taken", figures.in_flight)?;
        gauge("calls_limit", "The most slots for callbacks (callback.concurrency)", figures.limit)?;
        let names = names.iter().map(|name| &**name).chain([OTHER]);
        let figures = figures.services.into_iter().chain([figures.others]);
        let services: Vec<(&str, DestinationGauges)> = names.zip(figures).collect();
        let mut of_each = |name, help, figure: fn(&DestinationGauges) -> usize| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (service, figures) in &services {
                let labels = [("service", *service)];
                ConstGauge::new(figure(figures) as u64).encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        of_each(
            "destination_in_flight",
            "Slots for callbacks that the service has taken",
            |figures| figures.in_flight,
        )?;
        of_each(
            "destination_window",
            "The most slots that the service may take now: its limit, or less while it starts \
             slowly; for \"other\" the sum of the destinations in use",
            |figures| figures.window,
        )?;
        let mut family = encoder.encode_descriptor(
            "destination_breaker",
            "The state of the service's circuit breaker: 1 for the state that it is in, 0 for the \
             others; for \"other\" the number of destinations in each state",
            None,
            MetricType::Gauge,
        )?;
        for (service, figures) in &services {
            for (state, count) in BreakerState::ALL.iter().zip(figures.breakers) {
                let labels = [("service", *service), ("state", state.as_str())];
                ConstGauge::new(count as u64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
