//! Adds with many tasks per request: the throughput of the store with little HTTP.

use bytes::Bytes;

use super::{add, options};
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::load::Pace;
use crate::stage::Stage;
use crate::task::{Template, When, batch};
use delayd_wire::Span;

/// Requests per connection before the measurement begins.
const WARM_UP: u64 = 5;

/// Add tasks that are due tomorrow, many per request, as fast as the service accepts them (closed
/// loop).
///
/// Verifies that each task has a unique id, and that the service counts all of them.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Tasks per request
    #[arg(
        long,
        value_name = "N",
        default_value = "500",
        value_parser = clap::value_parser!(u64).range(1..=10_000)
    )]
    batch: u64,
    /// Concurrent requests
    #[arg(long, value_name = "N", default_value = "4", value_parser = options::connections())]
    connections: usize,
    /// How long to measure
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "3s",
        value_parser = options::span
    )]
    span: Span,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let topic = stage.topic("add-batch");
    let template = Template::push(&topic, stage.service(), params.bytes)?;
    let body = batch(0..params.batch, |_, body| template.write(When::Tomorrow, body));
    let request = Bytes::from(stage.peer().post("/delay/task/add_batch", &body));
    let adds = |pace| {
        stage.adds(params.connections, pace, {
            let request = request.clone();
            move |_| request.clone()
        })
    };
    let warm_up = params.connections as u64 * WARM_UP;
    stage.progress.step("batches to warm up", warm_up);
    let warm = adds(Pace::Count(warm_up)).await?;
    stage.progress.step("batches", 0);
    let (mut figures, usage) = (Figures::default(), Usage::now(stage));
    let load = adds(Pace::For(params.span.0)).await?;
    figures.put_load("adds", &load);
    usage.put(stage, &mut figures);
    add::check(&[&warm, &load])?;
    let sent = (warm.requests + load.requests) * params.batch;
    let accepted = (warm.accepted.len() + load.accepted.len()) as u64;
    let counted = stage.counts(&topic).await?.scheduled;
    if (sent, sent) == (accepted, counted) {
        return Ok(figures);
    }
    Err(Error::Defect(format!(
        "{sent} tasks were sent, {accepted} were accepted, and {counted} are counted"
    )))
}
