//! A steady stream of tasks: measures their lateness.

use bytes::Bytes;

use super::options;
use crate::account;
use crate::clock;
use crate::figures::{Figures, Usage};
use crate::load::Pace;
use crate::stage::{LOOK, Stage};
use crate::task::{Template, When};

/// The delay of each task. An add that is answered later than this makes its task overdue.
const LEAD_MS: i64 = 1_000;
/// Connections of the open loop, more than normally needed: enough for a thousand adds a second
/// that wait for syncs of 0.2 s.
pub(super) const CONNECTIONS: usize = 256;

/// Add tasks at a steady rate, each due one second after its add, and call them back (open loop:
/// send times are planned in advance, and latencies count from the planned time).
///
/// Lateness counts from the due millisecond to the arrival of the callback. Verifies that each task
/// arrives exactly once and not early. `server_cpu_percent` is the CPU time of the service for each
/// second of the stream, in percent of one core.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    /// Tasks per second
    #[arg(long, value_name = "N", default_value = "1000", value_parser = options::rate())]
    rate: u32,
    /// How long to measure
    #[arg(long = "for", value_name = "DURATION", default_value = "5s")]
    span: options::Measured,
    /// Purge the tasks at the end, so that each ran through its whole life
    #[arg(long)]
    purge: bool,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let topic = stage.topic("lateness");
    let mut figures = Figures::default();
    measure(stage, &topic, params.rate, params.span, &mut figures).await?;
    if params.purge {
        stage.purge(&topic).await?;
    }
    Ok(figures)
}

/// Measures a stream through a topic, which may have waiting tasks.
pub(super) async fn measure(
    stage: &Stage,
    topic: &str,
    rate: u32,
    span: options::Measured,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let count = ((f64::from(rate) * span.get().as_secs_f64()) as u64).max(1);
    let before = stage.counts(topic).await.map_or(0, |counts| counts.delivered);
    stage.progress.step("adds", count);
    let usage = Usage::now(stage);
    let templates = [stage.template(topic)?];
    let adds = stream(stage, &templates, rate);
    let load = stage.adds(CONNECTIONS, Pace::Rate(rate.into(), count), adds).await?;
    let last_ms = load.accepted.iter().map(|task| task.due_ms).max().unwrap_or_default();
    let arrivals = stage.arrivals(load.accepted.len(), last_ms).await;
    let arrived = account::check(&load.accepted, &arrivals)?;
    stage.settled(topic, before + count, LOOK).await?;
    figures.put("tasks", count as f64);
    figures.put_lateness(&arrived);
    figures.put_spread("add", &load.latency);
    let (seconds, cpu_s) = (count as f64 / f64::from(rate), usage.server_cpu_s(stage));
    figures.put_any("server_cpu_percent", cpu_s.map(|cpu_s| cpu_s / seconds * 100.0));
    usage.put(stage, figures);
    Ok(())
}

/// Creates adds from the templates in turn. Each is due a fixed time after its planned send time.
pub(super) fn stream(stage: &Stage, templates: &[Template], rate: u32) -> impl Fn(u64) -> Bytes {
    let first_ms = clock::now_ms() + LEAD_MS;
    move |n: u64| {
        let due_ms = first_ms + (n as f64 * 1_000.0 / f64::from(rate)) as i64;
        let template = &templates[n as usize % templates.len()];
        Bytes::from(stage.peer.post("/delay/task/add", &template.task(When::At(due_ms))))
    }
}
