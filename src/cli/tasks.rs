//! `delayd find`, `delayd list` and `delayd search`: show tasks of one or all topics.

use delayd_wire::{
    Entry, ErrorCode, FindRequest, FoundTask, FoundTasks, ListOrder, ListRequest, Number,
    Page as TaskPage, SearchRequest, TaskState,
};

use super::args::one_of;
use super::cell::Cell;
use super::client::{ApiClient, RefusedByService, ServerArgs};
use super::due::seconds;
use super::paging::Paging;
use super::table::Column;
use super::{Code, output, table};
use crate::model::task::{Destination, TaskId, Topic};

/// Find a task in all topics, by its id or a key.
///
/// It needs a token with the scope view or admin for all topics.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "delayd find [OPTIONS] <TASK_ID>|--key <KEY>|--idempotency-key <KEY>",
    after_help = "\
Examples:
  delayd find 1795234567000042
  delayd find --key device-7
  delayd find --idempotency-key order-42"
)]
pub(super) struct FindArgs {
    #[command(flatten)]
    name: TaskNameArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// What names a task.
#[derive(Debug, clap::Args)]
pub(super) struct TaskNameArgs {
    /// The task's id
    #[arg(
        required_unless_present_any = ["key", "idempotency_key"],
        conflicts_with_all = ["key", "idempotency_key"],
        value_parser = task_id
    )]
    pub(super) task_id: Option<TaskId>,
    #[command(flatten)]
    pub(super) keys: TaskKeyArgs,
}

/// The keys that name a task, instead of its id.
#[derive(Debug, Default, clap::Args)]
pub(super) struct TaskKeyArgs {
    /// The task's key, instead of its id
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// The task's idempotency key, instead of its id; with --key, if the task has one
    #[arg(long, value_name = "KEY")]
    pub(super) idempotency_key: Option<String>,
}

impl TaskKeyArgs {
    /// Whether there is one.
    pub(super) fn is_given(&self) -> bool {
        self.key.is_some() || self.idempotency_key.is_some()
    }
}

/// Parses an id.
pub(super) fn task_id(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|error| format!("{error}; a key of your own belongs into --key"))
}

/// Says of an id that no task has that it may be a key of the user.
pub(super) fn or_key(id: Option<TaskId>) -> impl Fn(anyhow::Error) -> anyhow::Error {
    move |error| match (id, error.downcast::<RefusedByService>()) {
        (Some(id), Ok(mut refused))
            if refused.code == ErrorCode::NotFound && refused.sentence.starts_with("task_id:") =>
        {
            refused.sentence += &may_be_key(id);
            refused.into()
        }
        (_, refused) => refused.map_or_else(|error| error, Into::into),
    }
}

fn may_be_key(id: TaskId) -> String {
    format!("; if {id} is a key of your own, use --key {id} (or --idempotency-key)")
}

pub(super) async fn find(args: FindArgs) -> anyhow::Result<Code> {
    let FindArgs { name: TaskNameArgs { task_id, keys }, server } = args;
    let TaskKeyArgs { key, idempotency_key } = keys;
    let client = server.client()?;
    let (mut tasks, mut cursor) = (Vec::new(), None);
    loop {
        let (key, idempotency_key) = (key.clone(), idempotency_key.clone());
        let body = FindRequest { task_id: task_id.map(Into::into), key, idempotency_key, cursor };
        let found: FoundTasks = client.call("/delay/task/find", &body).await?;
        tasks.extend(found.tasks);
        cursor = found.cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !client.is_json() {
        let hint = task_id.filter(|_| tasks.is_empty()).map(may_be_key);
        output::line(&(found(&tasks) + &hint.unwrap_or_default()))?;
    }
    Ok(Code::Done)
}

fn found(tasks: &[FoundTask]) -> String {
    if tasks.is_empty() {
        return "no task".into();
    }
    let columns: [Column<FoundTask>; 7] = [
        ("topic", |found| found.topic.cell()),
        ("task_id", |found| found.task.task_id.cell()),
        ("state", |found| found.task.state.cell()),
        ("due", |found| found.task.due_ms.cell()),
        ("attempts", |found| found.task.attempts.cell()),
        ("key", |found| found.task.key.cell()),
        ("last_outcome", |found| found.task.last_outcome.cell()),
    ];
    table::of(tasks, &columns)
}

/// List the tasks of a topic in one state, in time order.
///
/// Scheduled tasks are ordered by due time, leased ones by the end of their lease, all others by
/// their end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd list orders
  delayd list orders dead --all
  delayd list orders delivered --newest --sn message.call
  delayd list orders --from 1795236000 --to 1795239600 --limit 1000 --json")]
pub(super) struct ListArgs {
    /// The topic
    topic: Topic,
    /// The state
    #[arg(
        default_value = "scheduled",
        value_parser = one_of(&TaskState::ALL, TaskState::as_str)
    )]
    state: TaskState,
    #[command(flatten)]
    page: FilterArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which tasks to list.
#[derive(Debug, clap::Args)]
pub(super) struct FilterArgs {
    #[command(flatten)]
    paging: Paging,
    /// Only tasks from this moment on
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    from: Option<Number>,
    /// Only tasks up to this moment
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    to: Option<Number>,
    /// The latest tasks first
    #[arg(long)]
    newest: bool,
    /// Only tasks for this service or host; @pull: only pulled tasks
    #[arg(long, value_name = "SERVICE")]
    sn: Option<Destination>,
    /// Only tasks whose last outcome is exactly this
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only tasks that are due from this moment on
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    due_from: Option<Number>,
    /// Only tasks that are due up to this moment
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    due_to: Option<Number>,
}

pub(super) async fn list(args: ListArgs) -> anyhow::Result<Code> {
    show(&args.server.client()?, &args.topic, args.state, args.page).await
}

/// Prints the page, or all pages from there on.
pub(super) async fn show(
    client: &ApiClient,
    topic: &Topic,
    state: TaskState,
    page: FilterArgs,
) -> anyhow::Result<Code> {
    let FilterArgs { paging, from, to, newest, sn, outcome, due_from, due_to } = page;
    let read = async |limit, cursor| {
        let body = ListRequest {
            topic: topic.clone(),
            state,
            limit,
            cursor,
            from,
            to,
            order: newest.then_some(ListOrder::Newest),
            sn: sn.clone(),
            outcome: outcome.clone(),
            due_from,
            due_to,
        };
        let page: TaskPage = client.call("/delay/task/list", &body).await?;
        Ok((page.tasks, page.cursor))
    };
    paging.show(client, read, shown).await
}

pub(super) fn shown(tasks: &[Entry]) -> String {
    if tasks.is_empty() {
        return "no tasks".into();
    }
    let columns: [Column<Entry>; 7] = [
        ("task_id", |task| task.task_id.cell()),
        ("due", |task| task.due_ms.cell()),
        ("to", |task| task.sn.as_ref().map_or_else(|| task.mode.cell(), Cell::cell)),
        ("attempts", |task| task.attempts.cell()),
        ("finished", |task| task.finished_ms.cell()),
        ("key", |task| task.key.cell()),
        ("last_outcome", |task| task.last_outcome.cell()),
    ];
    table::of(tasks, &columns)
}

/// List the tasks of a topic in one state whose content contains a text, the latest first.
///
/// The contents are read one after the other. It needs a token with the scope admin.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd search orders 'order-42'
  delayd search orders '\"customer\":7' --state delivered --all")]
pub(super) struct SearchArgs {
    /// The topic
    topic: Topic,
    /// The text, byte for byte
    text: String,
    /// The state
    #[arg(
        long,
        value_name = "STATE",
        default_value = "scheduled",
        value_parser = one_of(&TaskState::ALL, TaskState::as_str)
    )]
    state: TaskState,
    /// The earliest tasks first
    #[arg(long)]
    oldest: bool,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn search(args: SearchArgs) -> anyhow::Result<Code> {
    let SearchArgs { topic, text, state, oldest, paging, server } = args;
    let client = server.client()?;
    let read = async |limit, cursor| {
        let body = SearchRequest {
            topic: topic.clone(),
            state,
            text: text.clone(),
            limit,
            cursor,
            order: oldest.then_some(ListOrder::Oldest),
        };
        let page: TaskPage = client.call("/delay/task/search", &body).await?;
        Ok((page.tasks, page.cursor))
    };
    paging.show(&client, read, shown).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn found_tasks_are_a_table() {
        assert_eq!(found(&[]), "no task");
        let tasks = json!([{"topic": "orders", "task": {
            "task_id": 7, "state": "dead", "mode": "push", "sn": "message.call",
            "due_ms": 1_795_234_577_000_i64, "due": "", "attempts": 2, "created_ms": 1,
            "finished_ms": 2, "lease": null, "last_outcome": "410 Gone", "key": null,
        }}]);
        let tasks: Vec<FoundTask> = serde_json::from_value(tasks).unwrap();
        insta::assert_snapshot!(found(&tasks), @r#"
        TOPIC   TASK_ID  STATE  DUE                       ATTEMPTS  KEY  LAST_OUTCOME
        orders  7        dead   2026-11-21T04:16:17.000Z  2         -    410 Gone
        "#);
    }

    #[test]
    fn a_page_is_a_table() {
        assert_eq!(shown(&[]), "no tasks");
        let tasks = json!([
            {
                "task_id": 7, "state": "scheduled", "mode": "push", "sn": "message.call",
                "due_ms": 1_795_234_577_000_i64, "due": "",
                "attempts": 2, "created_ms": 1, "finished_ms": null,
                "last_outcome": "410 Gone", "key": null,
            },
            {
                "task_id": 8, "state": "scheduled", "mode": "pull", "sn": null,
                "due_ms": 1_795_234_578_000_i64, "due": "",
                "attempts": 0, "created_ms": 1, "finished_ms": null, "last_outcome": null,
                "key": "device-7",
            },
        ]);
        let tasks: Vec<Entry> = serde_json::from_value(tasks).unwrap();
        insta::assert_snapshot!(shown(&tasks), @r#"
        TASK_ID  DUE                       TO            ATTEMPTS  FINISHED  KEY       LAST_OUTCOME
        7        2026-11-21T04:16:17.000Z  message.call  2         -         -         410 Gone
        8        2026-11-21T04:16:18.000Z  pull          0         -         device-7  -
        "#);
    }
}
