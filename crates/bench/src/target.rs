//! Which service is measured.

use std::net::SocketAddr;
use std::time::Duration;

/// The service to measure.
#[derive(Clone, Debug)]
pub struct Target {
    /// A running service. If `None`, one is started.
    pub running: Option<Running>,
    /// The store of a started service.
    pub store: Store,
    /// The round trip from a started service to its Redis. Zero: as it is.
    pub round_trip: Duration,
    /// Further arguments of its command line, such as `--set` and a setting.
    pub configuration: Vec<String>,
}

/// A running service.
#[derive(Clone, Debug)]
pub struct Running {
    /// Host and port.
    pub address: String,
    /// The prefix of each path; empty for most.
    pub base: String,
    /// Its access token.
    pub token: Option<String>,
    /// The name of the receiver in its configuration.
    pub service: String,
    /// The address at which it expects the receiver.
    pub receiver: SocketAddr,
}

/// The store of a service that is started for a bench.
#[derive(Clone, Debug)]
pub enum Store {
    /// A file in a temporary folder.
    Embedded,
    /// Redis at this URL, with a key prefix of its own.
    Redis(String),
}

impl Store {
    /// The name in the settings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis(_) => "redis",
        }
    }
}
