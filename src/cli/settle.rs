//! `delayd ack`, `delayd nack` and `delayd extend`: settle a leased task.

use delayd_wire::{AckRequest, ExtendRequest, NackRequest, Nothing, Returned, UpTo};

use super::Code;
use super::cell::Cell;
use super::client::ServerArgs;
use super::due::{At, PASSED};
use crate::model::task::{Receipt, TaskId, Topic};
use delayd_wire::span::{Span, lease_of};

/// A leased task.
#[derive(Debug, clap::Args)]
struct Held {
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
    held: Held,
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
    held: Held,
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
    held: Held,
    /// The new lease, from now: 1s to 12h
    #[arg(long, value_name = "DURATION", value_parser = lease_of)]
    lease: Span,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn ack(args: AckArgs) -> anyhow::Result<Code> {
    let Held { topic, task_id, receipt } = args.held;
    let body = AckRequest { topic, task_id: task_id.into(), receipt };
    args.server.ask("/delay/task/ack", &body, |_: Nothing| "delivered".into()).await?;
    Ok(Code::Done)
}

pub(super) async fn nack(args: NackArgs) -> anyhow::Result<Code> {
    let Held { topic, task_id, receipt } = args.held;
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
    let Held { topic, task_id, receipt } = args.held;
    let body = ExtendRequest { topic, task_id: task_id.into(), receipt, lease: UpTo(args.lease) };
    args.server.ask("/delay/task/extend", &body, shown).await?;
    Ok(Code::Done)
}
