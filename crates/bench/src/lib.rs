//! Load for a service, and what it did under it: `delayd bench`.
//!
//! A scenario plays on a `stage`: a service that is a process of its own, and a `receiver` for its
//! callbacks. `load` makes the requests, over `wire`, on the thread that the bench runs on and no
//! other: it shares the machine with what it measures. `account` holds what was accepted against
//! what arrived.
//!
//! # Invariants
//!
//! - Every figure counts verified work alone: what is not as promised is an error, and then there
//!   is no figure.
//! - The service is known by its wire and its command line, as others know it. No part of it is
//!   called from here.
//! - What a bench makes, it removes, however it ends (but for kill -9).

use std::net::SocketAddr;

mod account;
mod bare;
mod figures;
mod load;
mod process;
mod progress;
mod receiver;
mod redis;
mod scenario;
mod server;
mod stage;
mod task;
mod wire;

pub use bare::serve as serve_bare;
pub use figures::Figures;
pub use progress::{Progress, Step};
pub use scenario::Scenario;

use stage::Stage;

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

/// What keeps a bench from telling figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service broke a promise.
    #[error("NOT AS PROMISED: {0}; so there are no figures")]
    Defect(String),
    /// It refused a part of the load.
    #[error("the service answered {status}: {answer}")]
    Refused {
        /// The answer's status.
        status: u16,
        /// The beginning of its body.
        answer: String,
    },
    /// A connection failed.
    #[error("a connection to the service failed")]
    Broken(#[source] std::io::Error),
    /// The receiver has no place.
    #[error("cannot listen for callbacks on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
    /// The service could not be started.
    #[error("cannot start a delayd")]
    Child(#[source] std::io::Error),
    /// It was started, and did not listen.
    #[error("the delayd that was started does not listen; what it said stands above")]
    NoStart,
    /// No temporary folder.
    #[error("cannot make a temporary folder")]
    Folder(#[source] std::io::Error),
    /// Redis could not be asked.
    #[error("Redis: {0}")]
    Redis(String),
    /// Whatever else keeps a scenario from its end.
    #[error("{0}")]
    Odd(String),
}

impl Error {
    fn refused(answer: &wire::Answer<'_>) -> Self {
        let text = String::from_utf8_lossy(answer.body);
        Self::Refused { status: answer.status, answer: text.chars().take(300).collect() }
    }

    fn redis(error: deadpool_redis::redis::RedisError) -> Self {
        Self::Redis(error.to_string())
    }
}

/// Plays a scenario until its end, or until `stop` resolves with a reason, and removes what it
/// made.
///
/// To be run on a runtime of one thread.
///
/// # Errors
/// See [`Error`].
pub async fn run(
    scenario: &Scenario,
    target: &Target,
    progress: Progress,
    stop: impl Future<Output = String>,
) -> Result<Figures, Error> {
    let mut stage = Stage::set(target, progress)?;
    let played = tokio::select! {
        played = play(scenario, target, &mut stage) => played,
        why = stop => Err(Error::Odd(why)),
    };
    let cleared = stage.clear().await;
    let figures = played?;
    cleared?;
    Ok(figures)
}

async fn play(scenario: &Scenario, target: &Target, stage: &mut Stage) -> Result<Figures, Error> {
    if target.running.is_none() {
        // The service that is started inherits the limit of this process.
        let open_files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(u64::MAX);
        stage.start(target, scenario.needs(open_files)?).await?;
    }
    scenario.play(stage).await
}
