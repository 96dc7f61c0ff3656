//! The load generator behind `delayd bench`: puts load on a service and verifies what it did.
//!
//! A scenario runs on a `stage`: a service in a process of its own, and a `receiver` for its
//! callbacks. `load` sends the requests through `wire`, all on the thread that runs the bench,
//! because it shares the machine with what it measures. `account` compares accepted tasks with
//! arrivals.
//!
//! # Invariants
//!
//! - Figures count only verified work. A broken promise is an error, and then there are no figures.
//! - The service is used only through HTTP and its command line. No code of it is called.
//! - A bench removes everything it created, however it ends, except after kill -9.

mod account;
mod bare;
mod clock;
mod distance;
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

/// Runs a scenario until its end, or until `stop` resolves with a reason. Then removes everything
/// it created.
///
/// Needs a current-thread runtime.
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
