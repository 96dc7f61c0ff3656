//! The answers of the calls about the services that tasks go to.

use serde::{Deserialize, Serialize};

use crate::{BreakerState, UnixMillis};

/// The answer of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Destinations {
    pub destinations: Vec<DestinationShown>,
}

/// One destination. Breaker, calls and failures are those of the instance that answers; the rest is
/// the store's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DestinationShown {
    pub sn: String,
    /// False for one that tasks wait for and that the configuration does not name or allow (any
    /// more).
    pub configured: bool,
    pub held: bool,
    pub waiting: u64,
    pub breaker: BreakerState,
    pub in_flight: usize,
    /// The most calls at a time just now.
    pub concurrency: usize,
    pub rate: Option<String>,
    /// How much longer its own `Retry-After` holds it.
    pub retry_after_ms: Option<u64>,
    pub last_error: Option<String>,
    pub last_error_ms: Option<UnixMillis>,
}

/// The answer of a hold and of its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Held {
    pub sn: String,
    pub held: bool,
}
