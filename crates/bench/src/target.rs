//! Which service is measured.

use std::net::SocketAddr;

/// Which service is tried.
#[derive(Clone, Debug)]
pub struct Target {
    /// One that runs; else one is started.
    pub running: Option<Running>,
    /// The store of one that is started.
    pub store: Store,
    /// Further words of its command line, such as `--set` and a setting.
    pub configuration: Vec<String>,
}

/// A service that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Host and port.
    pub address: String,
    /// What stands before each path; empty for most.
    pub base: String,
    /// Its access token.
    pub token: Option<String>,
    /// What it calls the receiver.
    pub service: String,
    /// Where it expects the receiver.
    pub receiver: SocketAddr,
}

/// The store of a service that is started for a bench.
#[derive(Clone, Debug)]
pub enum Store {
    /// A file in a temporary folder.
    Embedded,
    /// Keys of their own on the server of this URL.
    Redis(String),
}

impl Store {
    /// As the settings call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis(_) => "redis",
        }
    }
}
