//! Consumers instead of callbacks: pull with a lease, then acknowledge.

use std::sync::{Arc, Mutex, PoisonError};

use delayd_wire::PulledMany;
use hdrhistogram::Histogram;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::options;
use crate::account::{Accepted, Arrival, check, histogram};
use crate::clock;
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::load::micros;
use crate::progress::Progress;
use crate::stage::Stage;
use crate::task::{Template, When};
use crate::wire::Peer;

/// How many consecutive empty pulls until the tasks count as lost.
const PATIENCE: u32 = 1_000;

/// Pull due tasks with a lease, and acknowledge each (closed loop: each consumer pulls again after
/// its acknowledgements).
///
/// Verifies that each task is pulled exactly once.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Number of tasks
    #[arg(long, value_name = "N", default_value = "20000", value_parser = options::tasks())]
    tasks: u64,
    /// Number of consumers
    #[arg(long, value_name = "N", default_value = "16", value_parser = options::connections())]
    connections: usize,
    /// Tasks per pull
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=256)
    )]
    count: u32,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

/// The results of all consumers.
struct Got {
    pulled: Vec<Arrival>,
    latency: Histogram<u64>,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let topic = stage.topic("pull");
    let template = Template::pull(&topic, params.bytes)?;
    let now_ms = clock::now_ms();
    let load =
        stage.fill(params.tasks, move |_, body| template.write(When::At(now_ms), body)).await?;
    stage.progress.step("pulled", params.tasks);
    let got = Arc::new(Mutex::new(Got { pulled: Vec::new(), latency: histogram() }));
    let (usage, begun) = (Usage::now(stage), Instant::now());
    let mut consumers = JoinSet::new();
    for _ in 0..params.connections {
        let consumer = Consumer {
            peer: stage.peer().clone(),
            topic: topic.clone(),
            count: params.count,
            tasks: params.tasks as usize,
            got: got.clone(),
            progress: stage.progress.clone(),
        };
        consumers.spawn(consumer.run());
    }
    while let Some(ended) = consumers.join_next().await {
        ended.expect("a consumer does not panic")?;
    }
    let took = begun.elapsed().as_secs_f64();
    let got = Arc::into_inner(got)
        .expect("the consumers have ended")
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    // Due times are not checked here.
    let accepted: Vec<_> =
        load.accepted.iter().map(|task| Accepted { due_ms: 0, ..*task }).collect();
    check(&accepted, &got.pulled)?;
    stage.settled(&topic, params.tasks).await?;
    let mut figures = Figures::default();
    figures.put("tasks", params.tasks as f64);
    figures.put("pulled_and_acked_per_s", params.tasks as f64 / took);
    figures.put_spread("pull", &got.latency);
    usage.put(stage, &mut figures);
    Ok(figures)
}

struct Consumer {
    peer: Peer,
    topic: String,
    count: u32,
    tasks: usize,
    got: Arc<Mutex<Got>>,
    progress: Progress,
}

impl Consumer {
    /// Pulls and acknowledges until all tasks have been pulled.
    async fn run(self) -> Result<(), Error> {
        let mut connection = self.peer.connect().await.map_err(Error::Broken)?;
        let topic = &self.topic;
        let pull = json!({ "topic": topic, "lease": "60s", "count": self.count });
        let pull = self.peer.post("/delay/task/pull", &pull.to_string());
        let mut empty = 0;
        while self.lock().pulled.len() < self.tasks && empty < PATIENCE {
            let since = Instant::now();
            let answer = connection.exchange(&pull).await.map_err(Error::Broken)?;
            let Ok(PulledMany { tasks }) = serde_json::from_slice(answer.body) else {
                return Err(Error::refused(&answer));
            };
            empty = if tasks.is_empty() { empty + 1 } else { 0 };
            if !tasks.is_empty() {
                self.lock().latency.saturating_record(micros(since.elapsed()));
            }
            for task in tasks {
                let ack =
                    json!({ "topic": topic, "task_id": task.task_id, "receipt": task.receipt });
                let ack = self.peer.post("/delay/task/ack", &ack.to_string());
                let answer = connection.exchange(&ack).await.map_err(Error::Broken)?;
                if answer.status != 200 {
                    return Err(Error::refused(&answer));
                }
                let id = task.task_id.map_or(0, |id| id.0);
                self.lock().pulled.push(Arrival { id, at_us: clock::now_us() });
                self.progress.add(1);
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
