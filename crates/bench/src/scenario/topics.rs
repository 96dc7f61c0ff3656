//! Many topics: whether spread work costs more.

use bytes::Bytes;

use super::{add, burst, options};
use crate::account;
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::load::Pace;
use crate::stage::Stage;
use crate::task::{Template, When};

/// Add to many topics in turn, one task per request (closed loop); then a burst over all of them,
/// called back over HTTP.
///
/// Verifies that each task of the burst arrives exactly once and not early.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Number of topics
    #[arg(long, value_name = "N", default_value = "1000", value_parser = options::topics())]
    topics: u32,
    /// Number of adds, and of tasks in the burst
    #[arg(long, value_name = "N", default_value = "20000", value_parser = options::tasks())]
    tasks: u64,
    /// Concurrent adds
    #[arg(long, value_name = "N", default_value = "64", value_parser = options::connections())]
    connections: usize,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let topics: Vec<String> = (0..params.topics).map(|n| stage.topic(&n.to_string())).collect();
    let service = stage.service().to_owned();
    let templates = topics
        .iter()
        .map(|topic| Template::push(topic, &service, params.bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let peer = stage.peer().clone();
    let requests: Vec<_> = templates
        .iter()
        .map(|t| Bytes::from(peer.post("/delay/task/add", &t.task(When::Tomorrow))))
        .collect();
    let adds = |count| {
        let requests = requests.clone();
        stage.adds(params.connections, Pace::Count(count), move |n| {
            requests[n as usize % requests.len()].clone()
        })
    };
    let mut figures = Figures::default();
    stage.progress.step("new topics", params.topics.into());
    let first = adds(params.topics.into()).await?;
    figures.put("new_topics_per_s", first.tasks_per_s());
    stage.progress.step("adds", params.tasks);
    let usage = Usage::now(stage);
    let load = adds(params.tasks).await?;
    figures.put_load("adds", &load);
    add::check(&[&first, &load])?;
    let named: Vec<&String> = topics.iter().collect();
    let (accepted, due_ms) =
        burst::fill(stage, params.tasks, &named, &service, params.bytes).await?;
    let arrivals = stage.arrivals(accepted.len(), due_ms).await;
    let arrived = account::check(&accepted, &arrivals)?;
    let arrived_s = burst::seconds_since(due_ms, arrived.last_us);
    figures.put("burst_tasks", params.tasks as f64);
    figures.put("burst_arrived_s", arrived_s);
    figures.put("burst_arrived_per_s", params.tasks as f64 / arrived_s);
    figures.put_lateness(&arrived);
    usage.put(stage, &mut figures);
    Ok(figures)
}
