//! Much that waits: what a waiting task takes, and whether adds and callbacks mind the others.

use std::time::Duration;

use tokio::time::Instant;

use super::{add, lateness, options};
use crate::account::percentile_ms;
use crate::clock;
use crate::error::Error;
use crate::figures::Figures;
use crate::stage::{FILL_BATCH, Stage};
use crate::task::{Template, When};
use delayd_wire::Span;

const DAY_MS: u64 = 86_400_000;
/// Strewn over the day by this, which shares no factor with a day's milliseconds.
const STRIDE: u64 = 7_919_777;
/// How long the store rests after the filling, and how long Redis may take until the log that has
/// grown by it is written anew.
const REST: Duration = Duration::from_secs(2);
const REWRITING: Duration = Duration::from_secs(120);
/// How often lateness is measured: one stall of the machine makes a hundredth of a short round
/// late.
const ROUNDS: usize = 3;

/// Fill a topic with tasks that wait, due over the second day from now; then measure what each
/// takes, adds to that topic (closed loop), and how late others of it come (open loop, in three
/// rounds of which the one in the middle counts, by its p99).
///
/// Adds begin once Redis has ended the rewrite of its log that the filling may have caused;
/// `log_rewrites` says how many ran beside them all the same. What a task takes is what Redis'
/// `used_memory`, or the embedded store's files, have grown by. A batch that is answered 503 while
/// the topic is filled is sent again; `fill_unconfirmed` says how many were.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// How many tasks wait
    #[arg(long, value_name = "N", default_value = "50000", value_parser = options::tasks())]
    tasks: u64,
    /// How many adds are under way at a time, when those are measured
    #[arg(long, value_name = "N", default_value = "64", value_parser = options::connections())]
    connections: usize,
    /// Tasks a second, when lateness is measured
    #[arg(long, value_name = "N", default_value = "1000", value_parser = options::rate())]
    rate: u32,
    /// How long each is measured
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = options::span)]
    span: Span,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let topic = stage.topic("pending");
    let template = Template::push(&topic, stage.service(), params.bytes)?;
    let begin_ms = clock::now_ms() + DAY_MS as i64;
    let before = stored_bytes(stage).await?;
    let write = move |n: u64, body: &mut String| {
        template.write(When::At(begin_ms + (n.wrapping_mul(STRIDE) % DAY_MS) as i64), body);
    };
    let filled = stage.fill(params.tasks, write).await?;
    add::check(&[&filled])?;
    let counted = stage.counts(&topic).await?.scheduled;
    // What was not confirmed at first may have been stored all the same.
    let most = params.tasks + filled.unconfirmed * FILL_BATCH;
    if !(params.tasks..=most).contains(&counted) {
        return Err(Error::Defect(format!(
            "{} tasks were accepted, and {counted} are counted",
            params.tasks
        )));
    }
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
    let (rewrites, rewriting) = (log_rewrites(stage).await?, is_rewriting(stage).await?);
    add::measure(stage, &topic, params.connections, params.span, params.bytes, &mut figures)
        .await?;
    if let (Some(before), Some(after)) = (rewrites, log_rewrites(stage).await?) {
        figures.put("log_rewrites", after - before + f64::from(u8::from(rewriting)));
    }
    let late = lateness_beside(stage, &topic, params).await?;
    figures.extend(late.only(&["earliest", "lateness", "add_"]));
    Ok(figures)
}

/// The figures of the round in the middle.
async fn lateness_beside(stage: &Stage, topic: &str, params: &Params) -> Result<Figures, Error> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut late = Figures::default();
        lateness::measure(stage, topic, params.rate, params.span, params.bytes, &mut late).await?;
        rounds.push(late);
    }
    let p99_ms = |round: &Figures| round.get("lateness_p99_ms").unwrap_or(f64::MAX);
    rounds.sort_by(|one, other| p99_ms(one).total_cmp(&p99_ms(other)));
    Ok(rounds.swap_remove(ROUNDS / 2))
}

async fn rest(stage: &Stage) -> Result<(), Error> {
    tokio::time::sleep(REST).await;
    let since = Instant::now();
    while is_rewriting(stage).await? && since.elapsed() < REWRITING {
        tokio::time::sleep(REST).await;
    }
    Ok(())
}

/// Whether Redis is about to write its log anew, from a copy of itself.
async fn is_rewriting(stage: &Stage) -> Result<bool, Error> {
    let Some(redis) = stage.redis() else { return Ok(false) };
    Ok(redis.number("persistence", "aof_rewrite_in_progress").await? > 0.0)
}

/// How many such rewrites Redis has begun since its start.
async fn log_rewrites(stage: &Stage) -> Result<Option<f64>, Error> {
    match stage.redis() {
        Some(redis) => Ok(Some(redis.number("persistence", "aof_rewrites").await?)),
        None => Ok(None),
    }
}

async fn stored_bytes(stage: &Stage) -> Result<Option<f64>, Error> {
    match stage.redis() {
        Some(redis) => Ok(Some(redis.number("memory", "used_memory").await?)),
        None => Ok(stage.disk_bytes().map(|bytes| bytes as f64)),
    }
}
