//! One topic with many tasks due at once, beside quiet topics.

use std::cell::Cell;

use super::{burst, lateness, options};
use crate::account::{self, Accepted};
use crate::clock;
use crate::figures::{Figures, Usage};
use crate::load::Pace;
use crate::stage::{SELDOM, Stage};

/// How long before the flood the quiet topics start.
const BEFORE_MS: i64 = 2_000;
/// The quiet topics, and their tasks per second in all.
const QUIET: u32 = 10;
const QUIET_PER_S: u32 = 200;

/// One topic with many tasks due at once, beside quiet topics: measures the lateness of the quiet
/// topics meanwhile (open loop), the maximum memory of the service, and with Redis the 99.9th
/// percentile of script calls since its start.
///
/// All topics call the same service. Verifies that each task arrives exactly once and not early.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    /// Number of tasks of the flood
    #[arg(long, value_name = "N", default_value = "50000", value_parser = options::tasks())]
    tasks: u64,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let topic = stage.topic("flood");
    let usage = Usage::now(stage);
    let (flood, due_ms) = burst::fill(stage, params.tasks, std::slice::from_ref(&topic)).await?;
    let stop = Cell::new(false);
    let quiet = quiet(stage, due_ms, &stop);
    let drained = async {
        // Stop the quiet topics, also after an error.
        clock::sleep_until(due_ms).await;
        let settled = stage.settled(&topic, params.tasks, SELDOM).await;
        stop.set(true);
        settled
    };
    let (settled_us, quiet) = tokio::join!(drained, quiet);
    let (settled_us, quiet) = (settled_us?, quiet?);
    let last_ms = quiet.iter().map(|task| task.due_ms).max().unwrap_or_default();
    let arrivals = stage.arrivals(flood.len() + quiet.len(), last_ms).await;
    let all: Vec<Accepted> = flood.iter().chain(&quiet).copied().collect();
    account::check(&all, &arrivals)?;
    // The quiet tasks that were due during the flood.
    let meanwhile: Vec<_> = quiet
        .iter()
        .filter(|task| (due_ms..settled_us / 1_000).contains(&task.due_ms))
        .copied()
        .collect();
    let theirs = account::of(&meanwhile, &arrivals);
    let quiet_arrived = account::check(&meanwhile, &theirs)?;
    let mut figures = Figures::default();
    let drained_s = burst::seconds_since(due_ms, settled_us);
    figures.put("flood_tasks", params.tasks as f64);
    figures.put("flood_settled_s", drained_s);
    figures.put("flood_settled_per_s", params.tasks as f64 / drained_s);
    figures.put("quiet_tasks", meanwhile.len() as f64);
    figures.put_lateness(&quiet_arrived);
    if let Some(redis) = &stage.redis {
        figures.put_any("redis_scripts_p999_ms", redis.scripts_p999_ms().await?);
    }
    usage.put(stage, &mut figures);
    Ok(figures)
}

/// Adds to the quiet topics until told to stop, and returns the accepted tasks.
async fn quiet(stage: &Stage, due_ms: i64, stop: &Cell<bool>) -> anyhow::Result<Vec<Accepted>> {
    let topics = stage.topics("quiet", QUIET);
    let templates = topics.iter().map(|topic| stage.template(topic));
    let templates = templates.collect::<anyhow::Result<Vec<_>>>()?;
    clock::sleep_until(due_ms - BEFORE_MS).await;
    let adds = lateness::stream(stage, &templates, QUIET_PER_S);
    let pace = Pace::RateUntil(QUIET_PER_S.into(), stop);
    Ok(stage.adds(lateness::CONNECTIONS, pace, adds).await?.accepted)
}
