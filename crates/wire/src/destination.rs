//! The answers of the calls about destinations.

use serde::{Deserialize, Serialize};

use crate::{BreakerState, UnixMillis};

/// All destinations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Destinations {
    pub destinations: Vec<DestinationShown>,
}

/// One destination. `breaker`, `in_flight`, `concurrency`, `retry_after_ms` and the last error are
/// those of the instance that answers. The rest comes from the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DestinationShown {
    pub sn: String,
    /// False for a destination that the configuration does not name or allow, though tasks wait for
    /// it.
    pub configured: bool,
    pub held: bool,
    pub waiting: u64,
    pub breaker: BreakerState,
    pub in_flight: usize,
    /// The current limit of concurrent calls.
    pub concurrency: usize,
    pub rate: Option<String>,
    /// The remaining time of its own `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// Null before the first failure, and for a token with only the scope `view`.
    pub last_error: Option<String>,
    pub last_error_ms: Option<UnixMillis>,
}

/// The answer of hold and release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Held {
    pub sn: String,
    pub held: bool,
}
