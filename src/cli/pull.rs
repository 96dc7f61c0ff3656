//! `delayd pull`, and `delayd ack`, `delayd nack` and `delayd extend`, which settle a leased task.

use delayd_wire::span::{Span, lease_of};
use delayd_wire::{
    AckRequest, ExtendRequest, NackRequest, Nothing, Number, PullRequest, Pulled, PulledMany,
    Returned, UpTo,
};

use super::cell::{Cell, whole};
use super::client::ServerArgs;
use super::due::{At, PASSED};
use super::table::Column;
use super::{Code, table};
use crate::model::task::{Receipt, TaskId, Topic};

/// Pull due tasks, or read one by its id or a key.
///
/// Without --lease a pulled task is consumed. With --lease it returns after that time unless it is
/// acknowledged with the printed receipt. With --task-id or a key the task is only read, in any
/// state.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd pull notes
  delayd pull notes --count 10 --lease 30s --wait 20s
  delayd pull notes --task-id 1795234567000042 --json
  delayd pull alive --key device-7")]
pub(super) struct PullArgs {
    /// The topic
    topic: Topic,
    /// The maximum number of tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    count: Option<u16>,
    /// Lease the tasks for this long instead of consuming them
    #[arg(long, value_name = "DURATION", value_parser = lease_of)]
    lease: Option<Span>,
    /// If no task is due, wait this long for one, at most 30s
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// Read this task without pulling it
    #[arg(
        long,
        value_name = "TASK_ID",
        conflicts_with_all = ["count", "lease", "wait", "key", "idempotency_key"]
    )]
    task_id: Option<TaskId>,
    /// Read the newest task with this key without pulling it
    #[arg(long, value_name = "KEY", conflicts_with_all = ["count", "lease", "wait"])]
    key: Option<String>,
    /// Read the task with this idempotency key without pulling it; with --key, if the task has one
    #[arg(long, value_name = "KEY", conflicts_with_all = ["count", "lease", "wait"])]
    idempotency_key: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn pull(args: PullArgs) -> anyhow::Result<Code> {
    const PATH: &str = "/delay/task/pull";
    let PullArgs { topic, count, lease, wait, task_id, key, idempotency_key, server } = args;
    let body = PullRequest {
        topic,
        task_id: task_id.map(Into::into),
        key,
        idempotency_key,
        lease: lease.map(UpTo),
        count: count.map(Number::from),
        wait,
    };
    match count {
        Some(_) => server.ask(PATH, &body, |many: PulledMany| shown(&many.tasks)).await?,
        None => server.ask(PATH, &body, one).await?,
    }
    Ok(Code::Done)
}

/// The answer of a pull without `count`: one task, or none.
fn one(task: Pulled) -> String {
    if task.task_id.is_some() { shown(&[task]) } else { shown(&[]) }
}

fn shown(tasks: &[Pulled]) -> String {
    if tasks.is_empty() {
        return "no task is due".into();
    }
    let columns: [Column<Pulled>; 4] = [
        ("task_id", |task| task.task_id.cell()),
        ("attempt", |task| task.attempt.cell()),
        ("receipt", |task| task.receipt.cell()),
        // It is not cut: a consumed task is shown only here.
        ("content", |task| task.content.as_deref().map_or_else(|| "-".into(), whole)),
    ];
    table::of(tasks, &columns)
}

/// A leased task.
#[derive(Debug, clap::Args)]
struct PulledTask {
    /// The topic
    topic: Topic,
    /// The task's id
    task_id: TaskId,
    /// The receipt from the pull, or from the header `delay-receipt` of a callback
    receipt: Receipt,
}

/// Acknowledge a leased task: it is delivered.
///
/// It may be repeated.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd pull notes --lease 30s
  delayd ack notes 1795234567000042 9bd5ed4260de3f80b245b815")]
pub(super) struct AckArgs {
    #[command(flatten)]
    held: PulledTask,
    #[command(flatten)]
    server: ServerArgs,
}

/// Return a leased task: its attempt is used, and it is scheduled again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd nack notes 1795234567000042 9bd5ed4260de3f80b245b815
  delayd nack notes 1795234567000042 9bd5ed4260de3f80b245b815 --in 5m
  delayd nack notes 1795234567000042 9bd5ed4260de3f80b245b815 --at 2026-11-23T20:00:00+08:00")]
pub(super) struct NackArgs {
    #[command(flatten)]
    held: PulledTask,
    /// Due again after this time (seconds, or 1500ms, 10s, 5m, 2h, 7d) instead of its backoff
    #[arg(long = "in", value_name = "DURATION", conflicts_with = "at")]
    after: Option<Span>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    server: ServerArgs,
}

/// Extend the lease of a task. The receipt stays the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd extend notes 1795234567000042 9bd5ed4260de3f80b245b815 --lease 5m")]
pub(super) struct ExtendArgs {
    #[command(flatten)]
    held: PulledTask,
    /// The new lease, from now: 1s to 12h
    #[arg(long, value_name = "DURATION", value_parser = lease_of)]
    lease: Span,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn ack(args: AckArgs) -> anyhow::Result<Code> {
    let PulledTask { topic, task_id, receipt } = args.held;
    let body = AckRequest { topic, task_id: task_id.into(), receipt };
    args.server.ask("/delay/task/ack", &body, |_: Nothing| "delivered".into()).await?;
    Ok(Code::Done)
}

pub(super) async fn nack(args: NackArgs) -> anyhow::Result<Code> {
    let PulledTask { topic, task_id, receipt } = args.held;
    let (at, zone) = (args.at.text(), args.at.zone.clone());
    let body = NackRequest { topic, task_id: task_id.into(), receipt, delay: args.after, at, zone };
    let has_passed = |due| args.at.has_passed(due);
    let shown = |returned: Returned| match returned.due_ms {
        Some(due) if has_passed(due) => format!("returned, due {}: {PASSED}", due.cell()),
        Some(due) => format!("returned, due {}", due.cell()),
        None => "returned".into(),
    };
    args.server.ask("/delay/task/nack", &body, shown).await?;
    Ok(Code::Done)
}

pub(super) async fn extend(args: ExtendArgs) -> anyhow::Result<Code> {
    let shown = |_: Nothing| format!("leased for {} from now", args.lease);
    let PulledTask { topic, task_id, receipt } = args.held;
    let body = ExtendRequest { topic, task_id: task_id.into(), receipt, lease: UpTo(args.lease) };
    args.server.ask("/delay/task/extend", &body, shown).await?;
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_task_many_tasks_and_none_are_shown() {
        let task = |answer| serde_json::from_value::<Pulled>(answer).unwrap();
        assert_eq!(one(task(json!({"task_id": null, "content": null}))), "no task is due");
        assert_eq!(shown(&[]), "no task is due");
        let seven = task(json!({"task_id": 7, "attempt": 1, "content": "{\"a\":1}"}));
        insta::assert_snapshot!(one(seven), @r#"
        TASK_ID  ATTEMPT  RECEIPT  CONTENT
        7        1        -        {"a":1}
        "#);
        let long = "x".repeat(1_000);
        assert!(one(task(json!({"task_id": 7, "content": &long}))).ends_with(&long));
        let two = [
            task(json!({"task_id": 7, "attempt": 1, "receipt": "abc", "content": "x"})),
            task(json!({
                "task_id": 1_795_234_567_000_042_u64, "attempt": 12, "receipt": "def",
                "content": "y\nz",
            })),
        ];
        insta::assert_snapshot!(shown(&two), @r#"
        TASK_ID           ATTEMPT  RECEIPT  CONTENT
        7                 1        abc      x
        1795234567000042  12       def      y\nz
        "#);
    }
}
