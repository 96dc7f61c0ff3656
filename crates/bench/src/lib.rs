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

mod account;
mod bare;
mod clock;
mod error;
mod figures;
mod load;
mod process;
mod progress;
mod receiver;
mod redis;
mod scenario;
mod server;
mod stage;
mod target;
mod task;
mod wire;

pub use bare::serve as serve_bare;
pub use error::Error;
pub use figures::Figures;
pub use progress::{Progress, Step};
pub use scenario::Scenario;
pub use target::{Running, Store, Target};

use stage::Stage;

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
