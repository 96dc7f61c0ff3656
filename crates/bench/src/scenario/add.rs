//! Adds with one task per request: HTTP, parsing and the group commit of the store.

use bytes::Bytes;

use super::options;
use crate::account::check_ids;
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::load::{Load, Pace};
use crate::stage::Stage;
use crate::task::{Template, When};
use delayd_wire::Span;

/// Requests per connection before the measurement begins.
const WARM_UP: u64 = 20;

/// Add tasks that are due tomorrow, one per request, as fast as the service accepts them (closed
/// loop).
///
/// Verifies that each task has a unique id, and that the service counts all of them.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Concurrent requests; 1 sends one after the other
    #[arg(long, value_name = "N", default_value = "64", value_parser = options::connections())]
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
    let topic = stage.topic("add");
    let mut figures = Figures::default();
    measure(stage, &topic, params.connections, params.span, params.bytes, &mut figures).await?;
    Ok(figures)
}

/// Measures adds to a topic, which may have waiting tasks.
pub(super) async fn measure(
    stage: &Stage,
    topic: &str,
    connections: usize,
    span: Span,
    bytes: u16,
    figures: &mut Figures,
) -> Result<(), Error> {
    let template = Template::push(topic, stage.service(), bytes)?;
    let request = Bytes::from(stage.peer().post("/delay/task/add", &template.task(When::Tomorrow)));
    let adds = |pace| {
        stage.adds(connections, pace, {
            let request = request.clone();
            move |_| request.clone()
        })
    };
    stage.progress.step("adds to warm up", connections as u64 * WARM_UP);
    let warm = adds(Pace::Count(connections as u64 * WARM_UP)).await?;
    let before = stage.counts(topic).await?.scheduled;
    stage.progress.step("adds", 0);
    let usage = Usage::now(stage);
    let load = adds(Pace::For(span.0)).await?;
    figures.put_load("adds", &load);
    usage.put(stage, figures);
    check(&[&warm, &load])?;
    let (stored, counted) =
        (load.accepted.len() as u64, stage.counts(topic).await?.scheduled - before);
    if stored == counted {
        return Ok(());
    }
    Err(Error::Defect(format!("{stored} adds were accepted, and {counted} tasks are counted")))
}

/// Checks that ids are unique over all loads.
pub(super) fn check(loads: &[&Load]) -> Result<(), Error> {
    let mut all: Vec<_> = loads.iter().flat_map(|load| &load.accepted).copied().collect();
    all.sort_unstable();
    check_ids(&all)
}
