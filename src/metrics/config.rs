//! Reloads of the configuration.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

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
    /// The time of the last one, and why it was refused.
    last: Mutex<Option<(Instant, Option<String>)>>,
}

/// The reloads since the start, as operators see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// How many were taken.
    pub taken: u64,
    /// How many were refused.
    pub refused: u64,
    /// How long ago the last one was, and why it was refused.
    pub last: Option<(Duration, Option<String>)>,
}

impl ConfigMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let (reloads, succeeded) = (Family::default(), Gauge::default());
        let metrics = Self { reloads, succeeded, last: Mutex::default() };
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

    /// The configuration was read again. `refused` says why it is not in force.
    pub fn reloaded(&self, refused: Option<&str>) {
        let is_taken = refused.is_none();
        let result = if is_taken { ReloadResult::Taken } else { ReloadResult::Refused };
        self.reloads.get_or_create(&Reloaded { result }).inc();
        self.succeeded.set(is_taken.into());
        let last = Some((Instant::now(), refused.map(str::to_owned)));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// The reloads since the start.
    pub fn reloads(&self) -> Reloads {
        let count = |result| self.reloads.get_or_create(&Reloaded { result }).get();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Reloads {
            taken: count(ReloadResult::Taken),
            refused: count(ReloadResult::Refused),
            last: last.as_ref().map(|(at, why)| (at.elapsed(), why.clone())),
        }
    }
}
