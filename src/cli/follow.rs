//! `--wait` of `delayd get` and `delayd add`: follows a task to its end.

use std::time::Duration;

use anyhow::{bail, ensure};
use delayd_wire::{Found, GetRequest, Span, Task, TaskState};
use tokio::time::sleep;

use super::cell::Cell;
use super::client::ApiClient;
use super::retry_client::RetryClient;
use super::signals::EndSignals;
use super::tasks::{TaskKeyArgs, TaskNameArgs};
use super::{Code, output};
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{TaskId, Topic};

/// The shortest and the longest time between two looks at the task.
const OFTEN: Duration = Duration::from_millis(250);
const SELDOM: Duration = Duration::from_secs(5);
/// How long a look is repeated while the service does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a command waits; without a value, until the end.
pub(super) type FollowWait = Option<Span>;

#[derive(Debug, clap::Args)]
pub(super) struct WaitArgs {
    /// Wait until the task has ended, for at most this long if a time is given; unless it was
    /// delivered, the exit code is 1
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true)]
    pub(super) wait: Option<Option<Span>>,
}

/// Prints the task once it has ended, as `shown` does, and what happens meanwhile to stderr.
///
/// # Errors
/// The task ended without a delivery, or there is none, or the wait was over or interrupted.
pub(super) async fn to_end(
    client: ApiClient,
    topic: &Topic,
    name: TaskNameArgs,
    wait: FollowWait,
    shown: fn(&Task) -> String,
) -> anyhow::Result<Code> {
    let mut signals = EndSignals::listen()?;
    let mut seen = None;
    let why = tokio::select! {
        ended = follow(client, topic, name, &mut seen, shown) => {
            let task = ended?;
            ensure!(task.state == TaskState::Delivered, "{}", news(&task));
            return Ok(Code::Done);
        }
        signal = signals.next() => format!("{signal} ended the wait"),
        wait = over(wait) => format!("the wait of {wait} is over"),
    };
    match seen {
        Some(task) => bail!("{why}: {}", news(&task)),
        None => bail!("{why}: the service has not answered yet"),
    }
}

async fn over(wait: FollowWait) -> Span {
    let Some(span) = wait else { return std::future::pending().await };
    sleep(span.0).await;
    span
}

/// Looks at the task until it has ended. `seen` is the last look.
async fn follow(
    client: ApiClient,
    topic: &Topic,
    name: TaskNameArgs,
    seen: &mut Option<Task>,
    shown: fn(&Task) -> String,
) -> anyhow::Result<Task> {
    let TaskNameArgs { mut task_id, keys: TaskKeyArgs { mut key, mut idempotency_key } } = name;
    let is_json = client.is_json();
    let client = RetryClient::new(client, PATIENCE);
    let clock = Clock::system();
    loop {
        let body = GetRequest {
            topic: topic.clone(),
            task_id: task_id.map(Into::into),
            key,
            idempotency_key,
        };
        let (text, Found { task }) = client.call_for_text("/delay/task/get", &body).await?;
        if task.state.is_final() {
            output::line(&if is_json { text } else { shown(&task) })?;
            return Ok(task);
        }
        if seen.as_ref().is_none_or(|seen| news(seen) != news(&task)) {
            eprintln!("delayd: {}", news(&task));
        }
        // A key may name another task later.
        (task_id, key, idempotency_key) = (Some(TaskId(task.task_id.0)), None, None);
        let pause = pause(clock.now(), UnixMillis(task.due_ms.0));
        *seen = Some(task);
        sleep(pause).await;
    }
}

/// The time until the next look: the shorter, the nearer the due time is.
fn pause(now: UnixMillis, due: UnixMillis) -> Duration {
    Duration::from_millis(now.0.abs_diff(due.0) / 2).clamp(OFTEN, SELDOM)
}

/// A sentence about a task.
fn news(task: &Task) -> String {
    let Task { task_id, state, attempts, last_outcome, .. } = task;
    let due = match state {
        TaskState::Scheduled => format!(" for {}", task.due_ms.cell()),
        _ => String::new(),
    };
    let tried = match attempts {
        0 => String::new(),
        tried => format!(" after {}", output::many(u64::from(*tried), "attempt")),
    };
    let outcome = last_outcome.as_ref().map(|_| format!(": {}", last_outcome.cell()));
    format!("task {task_id} is {}{due}{tried}{}", state.as_str(), outcome.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_seldom_unless_the_task_is_nearly_due() {
        let check = |due: i64, millis: u128| {
            assert_eq!(pause(UnixMillis(1_000_000), UnixMillis(due)).as_millis(), millis, "{due}");
        };
        check(i64::MAX, 5_000);
        check(1_004_000, 2_000);
        check(1_000_000, 250);
        check(996_000, 2_000);
        check(0, 5_000);
    }
}
