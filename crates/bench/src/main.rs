//! `delayd-bench` puts load on a service and verifies what it did.
//!
//! A scenario runs on a `stage`: a service in a process of its own, and a `receiver` for its
//! callbacks. `load` sends the requests through `wire`, all on one thread, because work that moves
//! between threads would cost more than the work itself. `account` compares accepted tasks with
//! arrivals.
//!
//! # Invariants
//!
//! - Figures count only verified work. A broken promise is an error, and then there are no figures.
//! - The service is used only through HTTP and its command line.
//! - A bench removes everything it created, however it ends, except after kill -9.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::figures::Figures;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::target::Target;

mod account;
mod clock;
mod distance;
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

/// As in delayd, to which the limits are compared.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Put load on a delayd and print what it did: on a service that is started for this with an empty
/// store, or on a running one (`--server`).
///
/// All figures count only verified work: each task is accepted, arrives exactly once, and not
/// before its due time. If a check fails, that is printed instead of the figures, and the exit code
/// is 1. Everything that was created for the bench is removed, also after Ctrl-C.
///
/// Scenarios that measure throughput are closed loops: a fixed number of connections, each of which
/// sends its next request after the answer to the last. Scenarios that measure lateness or latency
/// are open loops: all send times are planned in advance, and times count from the plan.
#[derive(Parser)]
#[command(
    name = "delayd-bench",
    version,
    after_help = "\
Examples:
  delayd-bench add                                adds per second, 64 connections, embedded store
  delayd-bench add --connections 1                one after the other
  delayd-bench burst --tasks 20000 --store redis  with the Redis on 127.0.0.1:6379, own keys
  delayd-bench lateness --rate 3500 --for 10s --json
  delayd-bench burst --store redis --redis-round-trip 2ms     as if Redis were 2 ms away
  delayd-bench idle --topics 1000 --instances 3 --store redis --redis redis://127.0.0.1:6380/0
  delayd-bench burst --set worker.claim_batch=1024
  delayd-bench add --server http://127.0.0.1:7799 --service message.call \\
    --receiver 127.0.0.1:9000"
)]
struct Args {
    #[command(subcommand)]
    scenario: Scenario,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(objection) = args.objection() {
        Args::command().error(ErrorKind::ArgumentConflict, objection).exit();
    }
    let printed = match run(&args).await {
        Ok(figures) => writeln!(std::io::stdout(), "{}", args.told(&figures)).map_err(Into::into),
        Err(error) => Err(error),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delayd-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the scenario until its end, or until a signal. Then removes everything it created.
async fn run(args: &Args) -> anyhow::Result<Figures> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut stage = Stage::set(&args.target)?;
    let played = tokio::select! {
        played = play(args, &mut stage) => played,
        _ = terminate.recv() => Err(anyhow::anyhow!("interrupted by SIGTERM")),
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted by SIGINT")),
    };
    let cleared = stage.clear().await;
    let figures = played?;
    cleared?;
    Ok(figures)
}

async fn play(args: &Args, stage: &mut Stage) -> anyhow::Result<Figures> {
    if args.target.server.is_none() {
        // The service that is started inherits the limit of this process.
        let _ = rlimit::increase_nofile_limit(u64::MAX);
        stage.start(&args.target, args.scenario.instances()).await?;
    }
    args.scenario.play(stage).await
}

impl Args {
    /// Why these options cannot be combined, or `None`.
    fn objection(&self) -> Option<&'static str> {
        self.target.objection().or_else(|| self.scenario.objection(&self.target))
    }

    fn told(&self, figures: &Figures) -> String {
        let mut told = json!(self.scenario);
        if !self.json {
            let scenario = told["scenario"].as_str().unwrap_or_default();
            return format!("{scenario}; each task verified\n{figures}");
        }
        // A running service has a store of its own.
        told["store"] = self.target.server.is_none().then_some(&*self.target.store).into();
        told["verified"] = true.into();
        told["figures"] = figures.json();
        told.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_go_together_are_named() {
        let check = |line: &str, expected: Option<&str>| {
            let objection = Args::try_parse_from(line.split(' ')).unwrap().objection();
            let objection = objection.map(|text| text.split(':').next().unwrap());
            assert_eq!(objection, expected, "{line}");
        };
        check("delayd-bench add", None);
        check("delayd-bench add --server http://127.0.0.1:7799", Some("--server needs --service"));
        check("delayd-bench add --server http://127.0.0.1:7799/base/ --service a", None);
        check(
            "delayd-bench add --server http://127.0.0.1 --service a --set worker.lease=45s",
            Some("--config and --set are for a service that is started"),
        );
        check(
            "delayd-bench idle --server http://127.0.0.1 --service a",
            Some("this scenario measures processes that it starts itself"),
        );
        check("delayd-bench idle --instances 3", Some("several instances share only a Redis"));
        check("delayd-bench --store redis idle --instances 3", None);
    }

    #[test]
    fn wrong_options_are_refused() {
        let refused =
            |line: &str| assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        refused("delayd-bench");
        refused("delayd-bench add --connections 0");
        refused("delayd-bench add --for 2h");
        refused("delayd-bench add --bytes 10");
        refused("delayd-bench burst --store disk");
        refused("delayd-bench add --server https://127.0.0.1 --service a");
        refused("delayd-bench add --server 127.0.0.1:7799 --service a");
    }
}
