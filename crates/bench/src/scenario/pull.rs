//! Consumers instead of callbacks: pull with a lease, then acknowledge.

use std::cell::RefCell;

use delayd_wire::PulledMany;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use serde_json::json;
use tokio::time::Instant;

use super::options;
use crate::account::{Accepted, Arrival, check, histogram};
use crate::clock;
use crate::figures::{Figures, Usage};
use crate::load::micros;
use crate::stage::{LOOK, Stage};
use crate::task::When;

/// How many consecutive empty pulls until the tasks count as lost.
const PATIENCE: u32 = 1_000;

/// Pull due tasks with a lease, and acknowledge each (closed loop: each consumer pulls again after
/// its acknowledgements).
///
/// Verifies that each task is pulled exactly once.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    /// Number of tasks
    #[arg(long, value_name = "N", default_value = "20000", value_parser = options::tasks())]
    tasks: u64,
    /// Number of consumers
    #[arg(long, value_name = "N", default_value = "16", value_parser = options::connections())]
    connections: usize,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let topic = stage.topic("pull");
    let template = stage.template_to_pull(&topic)?;
    let now_ms = clock::now_ms();
    let load = stage.fill(params.tasks, |_, body| template.write(When::At(now_ms), body)).await?;
    stage.progress.step("pulled", params.tasks);
    let (pulled, latency) = (RefCell::default(), RefCell::new(histogram()));
    let consumer = Consumer { stage, params, topic: &topic, pulled, latency };
    let (usage, begun) = (Usage::now(stage), Instant::now());
    try_join_all((0..params.connections).map(|_| consumer.run())).await?;
    let took = begun.elapsed().as_secs_f64();
    // Due times are not checked here.
    let accepted: Vec<_> =
        load.accepted.iter().map(|task| Accepted { due_ms: 0, ..*task }).collect();
    check(&accepted, &consumer.pulled.borrow())?;
    stage.settled(&topic, params.tasks, LOOK).await?;
    let mut figures = Figures::default();
    figures.put("tasks", params.tasks as f64);
    figures.put("pulled_and_acked_per_s", params.tasks as f64 / took);
    figures.put_spread("pull", &consumer.latency.borrow());
    usage.put(stage, &mut figures);
    Ok(figures)
}

/// What all consumers share.
struct Consumer<'a> {
    stage: &'a Stage,
    params: &'a Params,
    topic: &'a String,
    pulled: RefCell<Vec<Arrival>>,
    latency: RefCell<Histogram<u64>>,
}

impl Consumer<'_> {
    /// Pulls and acknowledges until all tasks have been pulled.
    async fn run(&self) -> anyhow::Result<()> {
        let (peer, topic) = (&self.stage.peer, self.topic);
        let mut connection = peer.connect().await?;
        let pull = json!({"topic": topic, "lease": "60s", "count": 1});
        let pull = peer.post("/delay/task/pull", &pull.to_string());
        let mut empty = 0;
        while (self.pulled.borrow().len() as u64) < self.params.tasks && empty < PATIENCE {
            let since = Instant::now();
            let answer = connection.exchange(&pull).await?;
            let Ok(PulledMany { tasks }) = serde_json::from_slice(answer.body) else {
                return Err(answer.refused().into());
            };
            empty = if tasks.is_empty() { empty + 1 } else { 0 };
            if !tasks.is_empty() {
                self.latency.borrow_mut().saturating_record(micros(since.elapsed()));
            }
            for task in tasks {
                let (task_id, receipt) = (task.task_id, task.receipt);
                let ack = json!({"topic": topic, "task_id": task_id, "receipt": receipt});
                let ack = peer.post("/delay/task/ack", &ack.to_string());
                let answer = connection.exchange(&ack).await?;
                if answer.status != 200 {
                    return Err(answer.refused().into());
                }
                let id = task.task_id.map_or(0, |id| id.0);
                self.pulled.borrow_mut().push(Arrival { id, at_us: clock::now_us() });
                self.stage.progress.add(1);
            }
        }
        Ok(())
    }
}
