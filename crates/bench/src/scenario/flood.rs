//! One topic with many tasks due at once, beside quiet topics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::{burst, lateness, options};
use crate::account::{self, Accepted};
use crate::clock;
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::load::Pace;
use crate::stage::Stage;
use crate::task::{Template, When};

/// How long before the flood the quiet topics start.
const BEFORE_MS: i64 = 2_000;

/// One topic with many tasks due at once, beside quiet topics: measures the lateness of the quiet
/// topics meanwhile (open loop), the maximum memory of the service, and with Redis the slowest
/// command and the 99.9th percentile of script calls.
///
/// All topics call the same service, unless --apart. The slowest command is from the slow log of
/// Redis; if the log is empty, the figure is its threshold (`slowlog-log-slower-than`). Script
/// calls count since the start of Redis. Verifies that each task arrives exactly once and not
/// early.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Number of tasks of the flood
    #[arg(long, value_name = "N", default_value = "50000", value_parser = options::tasks())]
    tasks: u64,
    /// Number of quiet topics
    #[arg(long, value_name = "N", default_value = "10", value_parser = options::topics())]
    quiet: u32,
    /// Tasks per second of all quiet topics
    #[arg(long, value_name = "N", default_value = "200", value_parser = options::rate())]
    rate: u32,
    /// The quiet topics call another service
    #[arg(long)]
    apart: bool,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let topic = stage.topic("flood");
    let flooded = stage.service().to_owned();
    let newest_slow = match stage.redis() {
        Some(redis) => redis.newest_slow().await?,
        None => -1,
    };
    let usage = Usage::now(stage);
    let (flood, due_ms) =
        burst::fill(stage, params.tasks, &[&topic], &flooded, params.bytes).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let quiet = quiet(stage, params, due_ms, stop.clone());
    let drained = async {
        // Stop the quiet topics, also after an error.
        let settled = stage.settled_after(&topic, params.tasks, due_ms).await;
        stop.store(true, Ordering::Relaxed);
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
    if let Some(redis) = stage.redis() {
        figures.put("redis_slowest_command_ms", redis.slowest_ms(newest_slow).await?);
        if let Some(p999_ms) = redis.scripts_p999_ms().await? {
            figures.put("redis_scripts_p999_ms", p999_ms);
        }
    }
    usage.put(stage, &mut figures);
    Ok(figures)
}

/// Adds to the quiet topics until told to stop, and returns the accepted tasks.
async fn quiet(
    stage: &Stage,
    params: &Params,
    due_ms: i64,
    stop: Arc<AtomicBool>,
) -> Result<Vec<Accepted>, Error> {
    let service = if params.apart { stage.other_service() } else { stage.service() }.to_owned();
    let topics: Vec<_> = (0..params.quiet).map(|n| stage.topic(&format!("quiet.{n}"))).collect();
    let templates = topics
        .iter()
        .map(|topic| Template::push(topic, &service, params.bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let (rate, peer) = (params.rate, stage.peer().clone());
    clock::sleep_until(due_ms - BEFORE_MS).await;
    let first_ms = clock::now_ms() + lateness::LEAD_MS;
    let request = move |n: u64| {
        let due_ms = first_ms + (n as f64 * 1_000.0 / f64::from(rate)) as i64;
        Bytes::from(peer.post(
            "/delay/task/add",
            &templates[n as usize % templates.len()].task(When::At(due_ms)),
        ))
    };
    let load =
        stage.adds(lateness::CONNECTIONS, Pace::RateUntil(rate.into(), stop), request).await?;
    Ok(load.accepted)
}
