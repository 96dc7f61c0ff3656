//! Many tasks due at once: due times in whole seconds come in bursts.

use anyhow::{anyhow, ensure};

use super::options;
use crate::account::{self, Accepted, kept};
use crate::clock;
use crate::figures::{Figures, Usage};
use crate::stage::{LOOK, Stage};
use crate::task::{Template, When};

/// Tasks of the trial that estimates how long the filling takes.
const TRIAL: u64 = 2_000;
/// The factor on that estimate, and the minimum time between the filling and the due time.
const MARGIN: f64 = 2.0;
const REST_MS: i64 = 1_000;

/// Many tasks that are due at the same second, called back over HTTP: measures how
/// fast they are drained.
///
/// Times count from the due time to the last callback, and to the last settled task. Verifies that
/// each task arrives exactly once and not early.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Params {
    /// Number of tasks
    #[arg(long, value_name = "N", default_value = "20000", value_parser = options::tasks())]
    tasks: u64,
    /// Number of topics; with more than one, only arrivals are measured
    #[arg(long, value_name = "N", default_value = "1", value_parser = options::topics())]
    topics: u32,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> anyhow::Result<Figures> {
    let topics = stage.topics("burst", params.topics);
    let (accepted, due_ms) = fill(stage, params.tasks, &topics).await?;
    clock::sleep_until(due_ms).await;
    let usage = Usage::now(stage);
    let arrivals = stage.arrivals(accepted.len(), due_ms).await;
    let arrived = account::check(&accepted, &arrivals)?;
    let mut figures = Figures::default();
    figures.put("tasks", params.tasks as f64);
    let mut took = |name: &str, at_us| {
        let seconds = seconds_since(due_ms, at_us);
        figures.put(format!("{name}_s"), seconds);
        figures.put(format!("{name}_per_s"), params.tasks as f64 / seconds);
    };
    took("arrived", arrived.last_us);
    if let [topic] = topics.as_slice() {
        took("settled", stage.settled(topic, params.tasks, LOOK).await?);
    }
    figures.put_lateness(&arrived);
    usage.put(stage, &mut figures);
    Ok(figures)
}

/// The seconds from one moment to another.
pub(super) fn seconds_since(due_ms: i64, at_us: i64) -> f64 {
    (at_us - due_ms * 1_000) as f64 / 1_000_000.0
}

/// Adds tasks to the topics in turn, all due at the same whole second, after the last was accepted.
/// Returns the tasks and the due time.
pub(super) async fn fill(
    stage: &Stage,
    tasks: u64,
    topics: &[String],
) -> anyhow::Result<(Vec<Accepted>, i64)> {
    let templates = |topics: &[String]| {
        topics.iter().map(|topic| stage.template(topic)).collect::<anyhow::Result<Vec<_>>>()
    };
    let trial = templates(&stage.topics("trial", topics.len() as u32))?;
    let templates = templates(topics)?;
    let trial = stage.fill(TRIAL, in_turn(&trial, |_| When::Tomorrow)).await?;
    let foreseen_ms = (tasks as f64 / trial.tasks_per_s() * MARGIN * 1_000.0) as i64;
    let due_ms = (clock::now_ms() + foreseen_ms + REST_MS + 999) / 1_000 * 1_000;
    let load = stage.fill(tasks, in_turn(&templates, |_| When::At(due_ms))).await?;
    if let Some(refusal) = load.refusal {
        return Err(anyhow!(
            "{} batches were not confirmed while the tasks were added, so some may be stored \
             twice; try again ({refusal})",
            load.unconfirmed
        ));
    }
    ensure!(
        clock::now_ms() + REST_MS / 4 <= due_ms,
        "the tasks fell due before all of them were added; try again, or with fewer"
    );
    let other = load.accepted.iter().find(|task| task.due_ms != due_ms);
    kept(other.is_none(), || format!("{other:?} is not due at {due_ms}"))?;
    Ok((load.accepted, due_ms))
}

/// Writes tasks from the templates in turn, with the due time from `when`.
fn in_turn(templates: &[Template], when: impl Fn(u64) -> When) -> impl Fn(u64, &mut String) {
    move |n, body| templates[n as usize % templates.len()].write(when(n), body)
}
