//! Idle topics: the cost of many topics in which nothing is due.

use std::time::Duration;

use super::options;
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::stage::Stage;
use crate::task::{Template, When};
use delayd_wire::Span;

/// The pause after the last add.
const CALM: Duration = Duration::from_secs(3);

/// Topics whose tasks are due tomorrow: measures the CPU usage and the Redis commands while nothing
/// is due.
///
/// All figures are per instance: `cpu_percent` of one core; with Redis, the commands per second,
/// and how often per second the server read from a connection (round trips).
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Number of topics, with one task each
    #[arg(long, value_name = "N", default_value = "1000", value_parser = options::topics())]
    topics: u32,
    /// Number of instances (more than one only with Redis)
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=16)
    )]
    pub(super) instances: u8,
    /// How long to measure
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = options::span
    )]
    span: Span,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let name = stage.topic("idle");
    let service = stage.service().to_owned();
    let topics: Vec<_> =
        (0..params.topics).map(|n| Template::push(&format!("{name}.{n}"), &service, 100)).collect();
    let topics = topics.into_iter().collect::<Result<Vec<_>, _>>()?;
    stage
        .fill(params.topics.into(), move |n, body| topics[n as usize].write(When::Tomorrow, body))
        .await?;
    stage.progress.step("seconds", 0);
    tokio::time::sleep(CALM).await;
    let (mut figures, usage) = (Figures::default(), Usage::now(stage));
    let before = work(stage).await?;
    tokio::time::sleep(params.span.0).await;
    let after = work(stage).await?;
    let mut used = Figures::default();
    usage.put(stage, &mut used);
    let (instances, seconds) = (f64::from(params.instances), params.span.0.as_secs_f64());
    figures.put("topics", params.topics.into());
    figures.put("instances", instances);
    if let Some(cpus) = used.get("server_cpus") {
        figures.put("cpu_percent", cpus * 100.0 / instances);
    }
    if let (Some((commands, reads)), Some((commands_before, reads_before))) = (after, before) {
        // The requests of the bench itself do not count.
        figures
            .put("redis_commands_per_s", (commands - commands_before - 1.0) / seconds / instances);
        figures.put("redis_reads_per_s", (reads - reads_before - 1.0) / seconds / instances);
    }
    figures.extend(used);
    Ok(figures)
}

/// The numbers of commands and of reads of Redis.
async fn work(stage: &Stage) -> Result<Option<(f64, f64)>, Error> {
    let Some(redis) = stage.redis() else { return Ok(None) };
    let stats = redis.info("stats").await?;
    let number = |name| stats.get(name).copied().unwrap_or_default();
    Ok(Some((number("total_commands_processed"), number("total_reads_processed"))))
}
