//! Nothing to do: what many topics cost in which nothing falls due.

use std::time::Duration;

use super::options;
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::stage::Stage;
use crate::task::{Template, When};
use delayd_wire::Span;

/// How long after the last add it is calm.
const CALM: Duration = Duration::from_secs(3);

/// Topics whose tasks are due tomorrow: the processor's share and the commands to Redis that they
/// cost while nothing happens.
///
/// Everything is told per instance: `cpu_percent` of one processor; with Redis the commands a
/// second, and how often a second the server read something from a connection, which is what its
/// round trips are.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// How many topics, of one task each
    #[arg(long, value_name = "N", default_value = "1000", value_parser = options::topics())]
    topics: u32,
    /// How many instances share them (with Redis)
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) instances: u8,
    /// How long
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = options::span)]
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
        // The questions of the bench itself are not the service's.
        figures
            .put("redis_commands_per_s", (commands - commands_before - 1.0) / seconds / instances);
        figures.put("redis_reads_per_s", (reads - reads_before - 1.0) / seconds / instances);
    }
    figures.extend(used);
    Ok(figures)
}

/// The commands that Redis has done, and how often it has read from a connection.
async fn work(stage: &Stage) -> Result<Option<(f64, f64)>, Error> {
    let Some(redis) = stage.redis() else { return Ok(None) };
    let stats = redis.info("stats").await?;
    let number = |name| stats.get(name).copied().unwrap_or_default();
    Ok(Some((number("total_commands_processed"), number("total_reads_processed"))))
}
