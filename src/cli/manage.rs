//! `delayd cancel` and `delayd update`.

use delayd_wire::{CancelRequest, Gone, Moved, UpdateRequest};

use super::cell::Cell;
use super::client::ServerArgs;
use super::due::Due;
use super::{Code, add, table};
use crate::model::task::{TaskId, Topic};

/// Cancel a task that is scheduled, waits for a retry, or is dead.
///
/// After success the task never fires. For a leased task this is an error: it is cancelled unless
/// its current attempt succeeds.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd cancel orders 1795234567000042")]
pub(super) struct CancelArgs {
    /// The topic
    topic: Topic,
    /// The task's id
    task_id: TaskId,
    #[command(flatten)]
    server: ServerArgs,
}

/// Change the due time or the content of a task that is scheduled or waits for a retry.
///
/// Its attempts start again at zero. Whether it is called back or pulled does not change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd update orders 1795234567000042 --in 2h
  delayd update orders 1795234567000042 --at 1795236367 '{\"sn\":\"shop\",\"url\":\"/x\"}'")]
pub(super) struct UpdateArgs {
    /// The topic
    topic: Topic,
    /// The task's id
    task_id: TaskId,
    #[command(flatten)]
    due: Due,
    /// The new content; - reads it from standard input
    content: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn cancel(args: CancelArgs) -> anyhow::Result<Code> {
    let body = CancelRequest { topic: Some(args.topic), task_id: Some(args.task_id) };
    args.server.ask("/delay/task/cancel", &body, |_: Gone| "cancelled".into()).await?;
    Ok(Code::Done)
}

pub(super) async fn update(args: UpdateArgs) -> anyhow::Result<Code> {
    let content = args.content.as_deref().map(add::content).transpose()?;
    let UpdateArgs { topic, task_id, due, server, .. } = args;
    let (topic, task_id, timing_moment, delay) =
        (Some(topic), Some(task_id), due.timing_moment(), due.delay());
    let body = UpdateRequest { topic, task_id, timing_moment, delay, content };
    server.ask("/delay/task/update", &body, shown).await?;
    Ok(Code::Done)
}

fn shown(moved: Moved) -> String {
    table::pairs(&[("task_id", moved.task_id.cell()), ("due", moved.due_ms.cell())])
}
