//! Many waiting tasks: their size, and whether adds and callbacks become slower.

use std::time::Duration;

use tokio::time::Instant;

use super::{add, lateness, options};
use crate::account::{kept, percentile_ms};
use crate::clock;
use crate::figures::Figures;
use crate::stage::{FILL_BATCH, Stage};
use crate::task::When;

const DAY_MS: u64 = 86_400_000;
/// Spreads due times over the day. Has no common factor with the milliseconds of a day.
const STRIDE: u64 = 7_919_777;
/// The pause after the filling, and the maximum wait for the rewrite of the Redis log.
const REST: Duration = Duration::from_secs(2);
const REWRITING: Duration = Duration::from_secs(120);
/// How often lateness is measured: in a short round, one stall of the machine makes 1 % of the
/// tasks late.
const ROUNDS: usize = 3;

/// Fill a topic with tasks that are due over the second day from now. Then measure the size of each
/// task, adds to the topic (closed loop), and the lateness of other tasks of the topic (open loop,
/// the median of three rounds by p99).
///
/// Adds begin after the log rewrite of Redis that the filling may have started. The size of a task
/// is the growth of `used_memory` of Redis, or of the files of the embedded store. Batches answered
/// with 503 during the filling are repeated; `fill_unconfirmed` counts them.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    /// Number of waiting tasks
    #[arg(long, value_name = "N", default_value = "50000", value_parser = options::tasks())]
    tasks: u64,
    #[command(flatten)]
    #[serde(flatten)]
    closed: options::Closed,
    /// Tasks per second for the lateness measurement
    #[arg(long, value_name = "N", default_value = "1000", value_parser = options::rate())]
    rate: u32,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let topic = stage.topic("pending");
    let template = stage.template(&topic)?;
    let begin_ms = clock::now_ms() + DAY_MS as i64;
    let before = stored_bytes(stage).await?;
    let write = move |n: u64, body: &mut String| {
        template.write(When::At(begin_ms + (n.wrapping_mul(STRIDE) % DAY_MS) as i64), body);
    };
    let filled = stage.fill(params.tasks, write).await?;
    add::check(&[&filled])?;
    let counted = stage.counts(&topic).await?.scheduled;
    // Unconfirmed batches may have been stored nevertheless.
    let most = params.tasks + filled.unconfirmed * FILL_BATCH;
    kept((params.tasks..=most).contains(&counted), || {
        format!("{} tasks were accepted, and {counted} are counted", params.tasks)
    })?;
    rest(stage).await?;
    let after = stored_bytes(stage).await?;
    let mut figures = Figures::default();
    figures.put("pending", counted as f64);
    figures.put("fill_per_s", filled.tasks_per_s());
    figures.put("fill_unconfirmed", filled.unconfirmed as f64);
    figures.put("fill_slowest_ms", percentile_ms(&filled.latency, 100.0));
    if let (Some(before), Some(after)) = (before, after) {
        figures.put("bytes_per_task", (after - before) / counted as f64);
    }
    add::measure(stage, std::slice::from_ref(&topic), &params.closed, None, &mut figures).await?;
    let late = lateness_beside(stage, &topic, params).await?;
    figures.extend(late.only(&["earliest", "lateness", "add_"]));
    Ok(figures)
}

/// The figures of the median round.
async fn lateness_beside(stage: &Stage, topic: &str, params: &Params) -> anyhow::Result<Figures> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut late = Figures::default();
        lateness::measure(stage, topic, params.rate, params.closed.span, &mut late).await?;
        rounds.push(late);
    }
    let p99_ms = |round: &Figures| round.get("lateness_p99_ms").unwrap_or(f64::MAX);
    rounds.sort_by(|one, other| p99_ms(one).total_cmp(&p99_ms(other)));
    Ok(rounds.swap_remove(ROUNDS / 2))
}

async fn rest(stage: &Stage) -> anyhow::Result<()> {
    tokio::time::sleep(REST).await;
    let since = Instant::now();
    while is_rewriting(stage).await? && since.elapsed() < REWRITING {
        tokio::time::sleep(REST).await;
    }
    Ok(())
}

/// Whether Redis is rewriting its log.
async fn is_rewriting(stage: &Stage) -> anyhow::Result<bool> {
    let Some(redis) = &stage.redis else { return Ok(false) };
    Ok(redis.number("persistence", "aof_rewrite_in_progress").await? > 0.0)
}

async fn stored_bytes(stage: &Stage) -> anyhow::Result<Option<f64>> {
    match &stage.redis {
        Some(redis) => Ok(Some(redis.number("memory", "used_memory").await?)),
        None => Ok(stage.disk_bytes().map(|bytes| bytes as f64)),
    }
}
