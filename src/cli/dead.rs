//! `delayd dead …`: shows, replays and purges dead tasks.

use anyhow::Context;
use clap::{ArgGroup, Subcommand};
use delayd_wire::{
    AtMost, Cause, Causes, CausesRequest, DeadPurgeRequest, DeadReplayRequest, Done, Rate,
    TaskState, TopicShown,
};
use serde::Serialize;

use super::cell::Cell;
use super::client::{ApiClient, ServerArgs};
use super::tasks::{self, FilterArgs};
use super::{Code, destination, output, progress, table, topic};
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{TaskId, Topic};

/// Show dead tasks, replay them, or delete them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd dead causes
  delayd dead causes orders
  delayd dead list orders --limit 10
  delayd dead replay orders --reason '503 Service Unavailable' --rate 100/s --dry-run
  delayd dead replay orders 1795234567000042 1795234567000043
  delayd dead purge orders --all --yes")]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Count the dead tasks of a topic, or of all topics, by their last outcome
    Causes(CausesArgs),
    /// List the dead tasks of a topic, in the order in which they died
    List(ListArgs),
    Replay(ReplayArgs),
    Purge(PurgeArgs),
}

#[derive(Debug, clap::Args)]
struct CausesArgs {
    /// The topic; all topics, if it is absent
    topic: Option<Topic>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    page: FilterArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Schedule dead tasks again, with new attempts.
///
/// Replays all tasks that were dead at the beginning, in several calls if needed. With --rate their
/// due times are spread, and the command waits between calls.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "delayd dead replay [OPTIONS] <TOPIC> <TASK_ID>...|--all|--reason <OUTCOME>"
)]
struct ReplayArgs {
    #[command(flatten)]
    which: WhichDead,
    /// The maximum rate, such as 100/s, 6000/m or 500/h
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Not needed: a replay deletes nothing. Other commands for many tasks need it
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Delete dead tasks permanently.
#[derive(Debug, clap::Args)]
#[command(override_usage = "delayd dead purge [OPTIONS] <TOPIC> <TASK_ID>...\n       \
                            delayd dead purge [OPTIONS] <TOPIC> --all|--reason <OUTCOME> --yes")]
struct PurgeArgs {
    #[command(flatten)]
    which: WhichDead,
    /// Required with --all and --reason, so that no tasks are deleted by mistake
    #[arg(long, required_unless_present_any = ["task_ids", "dry_run"])]
    yes: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which dead tasks.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
struct WhichDead {
    /// The topic
    topic: Topic,
    /// These tasks
    #[arg(value_name = "TASK_ID", group = "which")]
    task_ids: Vec<TaskId>,
    /// All dead tasks of the topic
    #[arg(long, group = "which", conflicts_with = "task_ids")]
    all: bool,
    /// Only tasks whose last outcome is exactly this, such as '503 Service Unavailable'
    #[arg(long, value_name = "OUTCOME", group = "which")]
    reason: Option<String>,
    /// Only count the tasks
    #[arg(long)]
    dry_run: bool,
}

impl WhichDead {
    /// The ids, or `None` for all tasks.
    fn tasks(&self) -> (Option<AtMost<delayd_wire::TaskId, 10_000>>, Option<bool>) {
        if self.task_ids.is_empty() {
            (None, Some(true))
        } else {
            (Some(AtMost(self.task_ids.iter().map(|id| (*id).into()).collect())), None)
        }
    }

    fn replay(&self, rate: Option<Rate>, cursor: Option<String>) -> impl Serialize {
        let (task_ids, all) = self.tasks();
        DeadReplayRequest {
            topic: self.topic.clone(),
            task_ids,
            all,
            reason: self.reason.clone(),
            rate,
            dry_run: self.dry_run.then_some(true),
            limit: None,
            cursor,
        }
    }

    fn purge(&self, cursor: Option<String>) -> impl Serialize {
        let (task_ids, all) = self.tasks();
        DeadPurgeRequest {
            topic: self.topic.clone(),
            task_ids,
            all,
            reason: self.reason.clone(),
            dry_run: self.dry_run.then_some(true),
            limit: None,
            cursor,
        }
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    match args.verb {
        Verb::Causes(CausesArgs { topic, server }) => {
            show_causes(&server.client()?, topic.as_ref()).await
        }
        Verb::List(ListArgs { topic, page, server }) => {
            tasks::show(&server.client()?, &topic, TaskState::Dead, page).await
        }
        Verb::Replay(ReplayArgs { which, rate, server, .. }) => {
            let replay =
                Repeated { path: "/delay/dead/replay", done: REPLAYED, client: server.client()? };
            replay.run(&which, |cursor| which.replay(rate, cursor)).await
        }
        Verb::Purge(PurgeArgs { which, server, .. }) => {
            let purge =
                Repeated { path: "/delay/dead/purge", done: "deleted", client: server.client()? };
            purge.run(&which, |cursor| which.purge(cursor)).await
        }
    }
}

/// Calls until all topics were looked at, and adds the answers.
async fn show_causes(client: &ApiClient, topic: Option<&Topic>) -> anyhow::Result<Code> {
    let mut all = Causes { causes: Vec::new(), more: false, topics_seen: None, cursor: None };
    loop {
        let body = CausesRequest { topic: topic.cloned(), cursor: all.cursor.take() };
        let Causes { causes, more, topics_seen, cursor } =
            client.call("/delay/dead/causes", &body).await?;
        causes.into_iter().for_each(|cause| add_cause(&mut all.causes, cause));
        all = Causes { causes: all.causes, more: all.more | more, topics_seen, cursor };
        if all.cursor.is_none() {
            break;
        }
    }
    all.causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    if !client.is_json() {
        output::line(&causes(all))?;
    }
    Ok(Code::Done)
}

/// Adds a cause to those that are known. Causes whose reason is hidden stay apart.
fn add_cause(all: &mut Vec<Cause>, cause: Cause) {
    let is_same = |known: &&mut Cause| known.reason.is_some() && known.reason == cause.reason;
    let Some(known) = all.iter_mut().find(is_same) else { return all.push(cause) };
    known.count += cause.count;
    known.first_ms = known.first_ms.min(cause.first_ms);
    known.last_ms = known.last_ms.max(cause.last_ms);
    known.topics.extend(cause.topics);
    // The answers are about different topics.
    known.more_topics = known.more_topics.zip(cause.more_topics).map(|(a, b)| a + b);
}

/// What a replay does to a task.
const REPLAYED: &str = "replayed";

/// A call that handles a limited number of dead tasks. It is repeated from the returned cursor.
struct Repeated {
    path: &'static str,
    /// The past participle that names what was done to a task.
    done: &'static str,
    client: ApiClient,
}

impl Repeated {
    async fn run<B: Serialize>(
        self,
        which: &WhichDead,
        body: impl Fn(Option<String>) -> B,
    ) -> anyhow::Result<Code> {
        let most = self.most(which).await?;
        let Self { path, done, client } = self;
        let (mut from, mut total) = (None, 0);
        // The bar also counts tasks that were skipped.
        let bar = progress::towards(most, "dead tasks checked");
        loop {
            let Done { count, seen, more, cursor, until_ms } =
                client.call(path, &body(from)).await?;
            total += count;
            bar.inc(seen);
            // A replayed task that dies again is behind the cursor, so it is not replayed twice.
            if !more {
                break;
            }
            // Without a cursor, the same request would be repeated forever.
            from = Some(cursor.context("the service reported more tasks, but no cursor")?);
            if let Some(until) = until_ms {
                Clock::system().sleep_until(UnixMillis(until.0)).await;
            }
        }
        bar.finish_and_clear();
        if !client.is_json() {
            let tasks = output::many(total, "task");
            let would = if which.dry_run { "would be " } else { "" };
            let waits = match (done, which.dry_run) {
                (REPLAYED, false) => destination::kept_waiting(&client).await,
                _ => String::new(),
            };
            output::line(&format!("{tasks} {would}{done}{waits}"))?;
        }
        Ok(Code::Done)
    }

    /// The maximum number of tasks that may be handled.
    async fn most(&self, which: &WhichDead) -> anyhow::Result<u64> {
        if !which.task_ids.is_empty() {
            return Ok(which.task_ids.len() as u64);
        }
        let answer = self.client.post("/delay/topic/get", &topic::of(&which.topic)).await?;
        Ok(answer.checked::<TopicShown>()?.counts.dead)
    }
}

fn causes(Causes { causes, more, .. }: Causes) -> String {
    if causes.is_empty() {
        return "no dead tasks".into();
    }
    let is_of_all = causes.iter().any(|cause| cause.topic.is_some());
    let row = |cause: &Cause| {
        let Cause { reason, count, first_ms, last_ms, task_id, sn, topic, topics, more_topics } =
            cause;
        let mut row = vec![count.cell(), first_ms.cell(), last_ms.cell()];
        if is_of_all {
            row.push((topics.len() as u64 + more_topics.unwrap_or_default()).cell());
            row.push(topic.cell());
        }
        row.extend([task_id.cell(), sn.cell(), reason.cell()]);
        row
    };
    let rows: Vec<_> = causes.iter().map(row).collect();
    let mut head = vec!["count", "first", "last"];
    if is_of_all {
        head.extend(["topics", "topic"]);
    }
    head.extend(["one_of_them", "its_sn", "reason"]);
    let table = table::columns(&head, &rows);
    if more { format!("{table}\nand more, which one call does not cover") } else { table }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;

    type Alone = crate::cli::args::Alone<Args>;

    fn which(line: &[&str]) -> Option<WhichDead> {
        let parsed = Alone::try_parse_from([&["dead", "purge"], line].concat()).ok()?;
        match parsed.args.verb {
            Verb::Purge(args) => Some(args.which),
            _ => None,
        }
    }

    #[test]
    fn the_selection_becomes_the_fields_of_the_request() {
        let check = |line: &[&str], expected: Option<Value>| {
            assert_eq!(which(line).map(|which| json!(which.purge(None))), expected, "{line:?}");
        };
        check(&["t"], None);
        check(&["t", "7", "--all"], None);
        check(&["t", "7", "8"], Some(json!({"topic": "t", "task_ids": [7, 8]})));
        check(
            &["t", "7", "--reason", "410 Gone"],
            Some(json!({"topic": "t", "task_ids": [7], "reason": "410 Gone"})),
        );
        check(&["t", "--reason", "410 Gone"], None);
        let all_of_a_cause = json!({"topic": "t", "all": true, "reason": "410 Gone"});
        check(&["t", "--reason", "410 Gone", "--yes"], Some(all_of_a_cause));
        check(&["t", "--all"], None);
        check(&["t", "--all", "--yes"], Some(json!({"topic": "t", "all": true})));
        check(
            &["t", "--all", "--dry-run"],
            Some(json!({"topic": "t", "all": true, "dry_run": true})),
        );
    }

    /// The usage named only the ids.
    #[test]
    fn a_missing_selection_names_each_way_to_select() {
        for verb in ["replay", "purge"] {
            let said = Alone::try_parse_from(["dead", verb, "t"]).unwrap_err().to_string();
            assert!(said.contains("<TASK_ID|--all|--reason <OUTCOME>>"), "{said}");
        }
    }

    #[test]
    fn causes_are_a_table() {
        let causes = |answer| causes(serde_json::from_value(answer).unwrap());
        assert_eq!(causes(json!({"causes": [], "more": false})), "no dead tasks");
        let answer = json!({"more": false, "causes": [
            {"reason": "410 Gone", "count": 12, "first_ms": 0, "last_ms": 1000, "task_id": 7,
             "sn": "shop"},
        ]});
        insta::assert_snapshot!(causes(answer), @r#"
        COUNT  FIRST                     LAST                      ONE_OF_THEM  ITS_SN  REASON
        12     1970-01-01T00:00:00.000Z  1970-01-01T00:00:01.000Z  7            shop    410 Gone
        "#);
    }

    #[test]
    fn causes_of_several_calls_are_added() {
        let cause = |count: u64, at: i64, topic: &str| -> Cause {
            let topics = json!([{"topic": topic, "count": count}]);
            serde_json::from_value(json!({
                "reason": "410", "count": count, "first_ms": at, "last_ms": at,
                "task_id": 7, "topic": topic, "topics": topics, "more_topics": at / 500,
            }))
            .unwrap()
        };
        let mut all = Vec::new();
        add_cause(&mut all, cause(2, 1000, "a"));
        add_cause(&mut all, cause(3, 500, "b"));
        let answer = Causes { causes: all, more: false, topics_seen: Some(2), cursor: None };
        let table = causes(answer);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0].join(" "), "COUNT FIRST LAST TOPICS TOPIC ONE_OF_THEM ITS_SN REASON");
        let row = "5 1970-01-01T00:00:00.500Z 1970-01-01T00:00:01.000Z 5 a 7 - 410";
        assert_eq!(rows[1].join(" "), row);
    }
}
