//! Adds: HTTP, parsing and the group commit of the store.

use bytes::Bytes;

use super::options::{Closed, topics};
use crate::account::{check_ids, kept};
use crate::figures::{Figures, Usage};
use crate::load::Load;
use crate::stage::Stage;
use crate::task::{When, batch};

/// Add tasks that are due tomorrow as fast as the service accepts them (closed loop).
///
/// Verifies that each task has a unique id, and that the service counts all of them.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    #[command(flatten)]
    #[serde(flatten)]
    closed: Closed,
    /// Tasks per request; without it, each request adds one task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: Option<u64>,
    /// Number of topics; requests go to them in turn
    #[arg(long, value_name = "N", default_value = "1", value_parser = topics())]
    topics: u32,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let topics = stage.topics("add", params.topics);
    measure(stage, &topics, &params.closed, params.batch, &mut figures).await?;
    Ok(figures)
}

/// Measures adds to topics, which may have waiting tasks.
pub(super) async fn measure(
    stage: &Stage,
    topics: &[String],
    closed: &Closed,
    of: Option<u64>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let request = |topic: &String| {
        let template = stage.template(topic)?;
        anyhow::Ok(Bytes::from(match of {
            None => stage.peer.post("/delay/task/add", &template.task(When::Tomorrow)),
            Some(tasks) => {
                let body = batch(0..tasks, |_, body| template.write(When::Tomorrow, body));
                stage.peer.post("/delay/task/add_batch", &body)
            }
        }))
    };
    let requests = topics.iter().map(request).collect::<anyhow::Result<Vec<_>>>()?;
    let request = |n: u64| requests[n as usize % requests.len()].clone();
    let begin = async || anyhow::Ok((stage.scheduled(topics).await?, Usage::now(stage)));
    let (warm, (before, usage), load) =
        closed.run(&stage.peer, &stage.progress, request, begin).await?;
    figures.put_load("adds", &load);
    usage.put(stage, figures);
    check(&[&warm, &load])?;
    let sent = load.requests * of.unwrap_or(1);
    let (accepted, after) = (load.accepted.len() as u64, stage.scheduled(topics).await?);
    kept((sent, sent) == (accepted, after - before), || {
        let counted = after - before;
        format!("{sent} tasks were sent, {accepted} were accepted, and {counted} are counted")
    })
}

/// Checks that ids are unique over all loads.
pub(super) fn check(loads: &[&Load]) -> anyhow::Result<()> {
    let mut all: Vec<_> = loads.iter().flat_map(|load| &load.accepted).copied().collect();
    all.sort_unstable();
    check_ids(&all)
}
