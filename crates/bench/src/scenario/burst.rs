//! Many tasks due at once: due times in whole seconds come in bursts.

use super::options;
use crate::account::{self, Accepted};
use crate::clock;
use crate::error::Error;
use crate::figures::{Figures, Usage};
use crate::stage::Stage;
use crate::task::{Template, When};

/// Tasks of the trial that estimates how long the filling takes.
const TRIAL: u64 = 2_000;
/// The factor on that estimate, and the minimum time between the filling and the due time.
const MARGIN: f64 = 2.0;
const REST_MS: i64 = 1_000;

/// Many tasks of one topic that are due at the same second, called back over HTTP: measures how
/// fast they are drained.
///
/// Times count from the due time to the last callback, and to the last settled task. Verifies that
/// each task arrives exactly once and not early.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Number of tasks
    #[arg(long, value_name = "N", default_value = "20000", value_parser = options::tasks())]
    tasks: u64,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let topic = stage.topic("burst");
    let service = stage.service().to_owned();
    let (accepted, due_ms) = fill(stage, params.tasks, &[&topic], &service, params.bytes).await?;
    let mut figures = Figures::default();
    clock::sleep_until(due_ms).await;
    let usage = Usage::now(stage);
    let arrivals = stage.arrivals(accepted.len(), due_ms).await;
    if arrivals.len() < accepted.len() {
        // Do not wait again for tasks that never arrived.
        account::check(&accepted, &arrivals)?;
    }
    let settled_us = stage.settled(&topic, params.tasks).await;
    usage.put(stage, &mut figures);
    let arrived = account::check(&accepted, &arrivals)?;
    let (arrived_s, settled_s) =
        (seconds_since(due_ms, arrived.last_us), seconds_since(due_ms, settled_us?));
    let mut told = Figures::default();
    told.put("tasks", params.tasks as f64);
    told.put("arrived_s", arrived_s);
    told.put("settled_s", settled_s);
    told.put("arrived_per_s", params.tasks as f64 / arrived_s);
    told.put("settled_per_s", params.tasks as f64 / settled_s);
    told.put_lateness(&arrived);
    told.extend(figures);
    Ok(told)
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
    topics: &[&String],
    service: &str,
    bytes: u16,
) -> Result<(Vec<Accepted>, i64), Error> {
    let templates = topics
        .iter()
        .map(|topic| Template::push(topic, service, bytes))
        .collect::<Result<Vec<_>, _>>()?;
    match topics {
        [_] => {
            fill_with(
                stage,
                tasks,
                &templates,
                &[Template::push(&stage.topic("trial"), service, bytes)?],
            )
            .await
        }
        // A fill of many topics uses as many for the trial.
        _ => fill_with(stage, tasks, &templates, &templates).await,
    }
}

/// Like [`fill`], with tasks from `templates` in turn. The tasks of `trial` are never due.
pub(super) async fn fill_with(
    stage: &Stage,
    tasks: u64,
    templates: &[Template],
    trial: &[Template],
) -> Result<(Vec<Accepted>, i64), Error> {
    let trial = stage.fill(TRIAL, in_turn(trial, |_| When::Tomorrow)).await?;
    let foreseen_ms = (tasks as f64 / trial.tasks_per_s() * MARGIN * 1_000.0) as i64;
    let due_ms = (clock::now_ms() + foreseen_ms + REST_MS + 999) / 1_000 * 1_000;
    let load = stage.fill(tasks, in_turn(templates, move |_| When::At(due_ms))).await?;
    if let Some(refusal) = load.refusal {
        return Err(Error::Odd(format!(
            "{} batches were not confirmed while the tasks were added, so some may be stored \
             twice; try again ({refusal})",
            load.unconfirmed
        )));
    }
    if clock::now_ms() + REST_MS / 4 > due_ms {
        return Err(Error::Odd(
            "the tasks fell due before all of them were added; try again, or with fewer".into(),
        ));
    }
    match load.accepted.iter().find(|task| task.due_ms != due_ms) {
        Some(task) => Err(Error::Defect(format!(
            "task {} is due at {} and not at {due_ms}",
            task.id, task.due_ms
        ))),
        None => Ok((load.accepted, due_ms)),
    }
}

/// Writes tasks from the templates in turn, with the due time from `when`.
pub(super) fn in_turn(
    templates: &[Template],
    when: impl Fn(u64) -> When + Clone + Send + 'static,
) -> impl Fn(u64, &mut String) + Clone + Send + 'static {
    let templates = templates.to_vec();
    move |n, body| templates[n as usize % templates.len()].write(when(n), body)
}
