//! Reloads of the configuration.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::label_value;

label_value! {
    /// Whether a configuration was taken.
    ReloadResult {
        /// It is in force.
        Taken = "taken",
        /// It is wrong, and the one before stays in force.
        Refused = "refused",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reloaded {
    result: ReloadResult,
}

/// What is counted where the configuration is read again.
#[derive(Debug)]
pub struct ConfigMetrics {
    reloads: Family<Reloaded, Counter>,
    succeeded: Gauge,
}

impl ConfigMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self { reloads: Family::default(), succeeded: Gauge::default() };
        registry.register(
            "config_reloads",
            "How often the configuration was read again while serving: taken, or refused because \
             it is wrong",
            metrics.reloads.clone(),
        );
        registry.register(
            "config_last_reload_success",
            "1 if the last configuration that was read is in force, 0 if it was refused",
            metrics.succeeded.clone(),
        );
        metrics.succeeded.set(1);
        for &result in ReloadResult::ALL {
            drop(metrics.reloads.get_or_create(&Reloaded { result }));
        }
        metrics
    }

    /// The configuration was read again.
    pub fn reloaded(&self, is_taken: bool) {
        let result = if is_taken { ReloadResult::Taken } else { ReloadResult::Refused };
        self.reloads.get_or_create(&Reloaded { result }).inc();
        self.succeeded.set(is_taken.into());
    }
}
