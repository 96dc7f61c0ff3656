//! Idle topics: the cost of many topics in which nothing is due.

use std::time::Duration;

use super::options;
use crate::figures::{Figures, Usage};
use crate::stage::Stage;
use crate::task::When;

/// The pause after the last add.
const CALM: Duration = Duration::from_secs(3);

/// Topics whose tasks are due tomorrow: measures the CPU usage and the Redis commands while nothing
/// is due.
///
/// All figures are per instance: `cpu_percent` of one core; with Redis, the commands per second,
/// and how often per second the server read from a connection (round trips).
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
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
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    span: options::Measured,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let topics = stage.topics("idle", params.topics);
    let topics = topics.iter().map(|topic| stage.template(topic));
    let topics = topics.collect::<anyhow::Result<Vec<_>>>()?;
    stage
        .fill(params.topics.into(), |n, body| topics[n as usize].write(When::Tomorrow, body))
        .await?;
    stage.progress.step("seconds", 0);
    tokio::time::sleep(CALM).await;
    let (mut figures, usage) = (Figures::default(), Usage::now(stage));
    let before = work(stage).await?;
    tokio::time::sleep(params.span.get()).await;
    let after = work(stage).await?;
    let (instances, seconds) = (f64::from(params.instances), params.span.get().as_secs_f64());
    figures.put("topics", params.topics.into());
    figures.put("instances", instances);
    let percent = |cpu_s| cpu_s * 100.0 / seconds / instances;
    figures.put_any("cpu_percent", usage.server_cpu_s(stage).map(percent));
    if let (Some((commands, reads)), Some((commands_before, reads_before))) = (after, before) {
        // The requests of the bench itself do not count.
        figures
            .put("redis_commands_per_s", (commands - commands_before - 1.0) / seconds / instances);
        figures.put("redis_reads_per_s", (reads - reads_before - 1.0) / seconds / instances);
    }
    usage.put(stage, &mut figures);
    Ok(figures)
}

/// The numbers of commands and of reads of Redis.
async fn work(stage: &Stage) -> anyhow::Result<Option<(f64, f64)>> {
    let Some(redis) = &stage.redis else { return Ok(None) };
    let stats = redis.info("stats").await?;
    let number = |name| stats.get(name).copied().unwrap_or_default();
    Ok(Some((number("total_commands_processed"), number("total_reads_processed"))))
}
