//! `delayd dead …`: what died, why, again, and away with it.

use anyhow::Context;
use clap::{ArgGroup, Subcommand};
use delayd_wire::{
    Cause, Causes, CausesRequest, DeadPurgeRequest, DeadReplayRequest, Done, TaskState, TopicShown,
};
use serde::Serialize;
use serde::de::IgnoredAny;

use super::cell::Cell;
use super::client::{Client, ServerArgs};
use super::list::{self, Page};
use super::{Code, out, progress, table, topic};
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{TaskId, Topic};

/// Look at dead tasks, schedule them again, or throw them away.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
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
    /// Group a topic's dead by what killed them, the commonest first
    Causes(CausesArgs),
    /// Show a topic's dead, in the order of their end
    List(ListArgs),
    Replay(ReplayArgs),
    Purge(PurgeArgs),
}

#[derive(Debug, clap::Args)]
struct CausesArgs {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    server: ServerArgs,
}

/// Schedule dead tasks again, with fresh attempts.
///
/// It goes on until all have been replayed that were dead at the beginning, however many are passed
/// over. With --rate their due moments are spread; where there are more than one call goes over it
/// waits in between.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "delayd dead replay [OPTIONS] <TOPIC> <TASK_ID>...|--all|--reason <OUTCOME>"
)]
struct ReplayArgs {
    #[command(flatten)]
    which: Which,
    /// So many in a time, such as 100/s, 6000/m or 500/h
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Throw dead tasks away, for good.
#[derive(Debug, clap::Args)]
#[command(override_usage = "delayd dead purge [OPTIONS] <TOPIC> <TASK_ID>...\n       \
                            delayd dead purge [OPTIONS] <TOPIC> --all|--reason <OUTCOME> --yes")]
struct PurgeArgs {
    #[command(flatten)]
    which: Which,
    /// Needed with --all and --reason, unless tasks are named, so that nothing is thrown away by
    /// mistake
    #[arg(long, required_unless_present_any = ["task_ids", "dry_run"])]
    yes: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which of the dead.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
struct Which {
    /// The topic
    topic: Topic,
    /// These tasks
    #[arg(value_name = "TASK_ID", group = "which")]
    task_ids: Vec<TaskId>,
    /// All of the topic's dead
    #[arg(long, group = "which", conflicts_with = "task_ids")]
    all: bool,
    /// Only those whose last outcome is exactly this, such as '503 Service Unavailable'
    #[arg(long, value_name = "OUTCOME", group = "which")]
    reason: Option<String>,
    /// Only count
    #[arg(long)]
    dry_run: bool,
}

impl Which {
    /// The tasks, or all of them.
    fn tasks(&self) -> (Option<&[TaskId]>, Option<bool>) {
        if self.task_ids.is_empty() { (None, Some(true)) } else { (Some(&self.task_ids), None) }
    }

    fn replay<'a>(&'a self, rate: Option<&'a str>, cursor: Option<String>) -> impl Serialize + 'a {
        let (task_ids, all) = self.tasks();
        DeadReplayRequest {
            topic: Some(&self.topic),
            task_ids,
            all,
            reason: self.reason.clone(),
            rate,
            dry_run: self.dry_run.then_some(true),
            limit: None::<u32>,
            cursor,
        }
    }

    fn purge(&self, cursor: Option<String>) -> impl Serialize {
        let (task_ids, all) = self.tasks();
        DeadPurgeRequest {
            topic: Some(&self.topic),
            task_ids,
            all,
            reason: self.reason.clone(),
            dry_run: self.dry_run.then_some(true),
            limit: None::<u32>,
            cursor,
        }
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    match args.verb {
        Verb::Causes(CausesArgs { topic, server }) => {
            server.ask("/delay/dead/causes", &CausesRequest { topic: Some(topic) }, causes).await?;
            Ok(Code::Done)
        }
        Verb::List(ListArgs { topic, page, server }) => {
            list::show(&server.client()?, &topic, TaskState::Dead, page).await
        }
        Verb::Replay(ReplayArgs { which, rate, server }) => {
            let replay =
                Repeated { path: "/delay/dead/replay", done: "replayed", client: server.client()? };
            replay.run(&which, |cursor| which.replay(rate.as_deref(), cursor)).await
        }
        Verb::Purge(PurgeArgs { which, server, .. }) => {
            let purge = Repeated {
                path: "/delay/dead/purge",
                done: "thrown away",
                client: server.client()?,
            };
            purge.run(&which, |cursor| which.purge(cursor)).await
        }
    }
}

/// A call that goes over so many of the dead as one may, and is made again behind those for the
/// others.
struct Repeated {
    path: &'static str,
    /// What has become of a task then.
    done: &'static str,
    client: Client,
}

impl Repeated {
    async fn run<B: Serialize>(
        self,
        which: &Which,
        body: impl Fn(Option<String>) -> B,
    ) -> anyhow::Result<Code> {
        let most = self.most(which).await?;
        let Self { path, done, client } = self;
        let (mut from, mut total) = (None, 0);
        // It moves with what is passed over as well.
        let bar = progress::towards(most, "gone over");
        loop {
            let Done { count, seen, more, cursor, until_ms } =
                client.call(path, &body(from)).await?;
            total += count;
            bar.inc(seen);
            // What is replayed and dies again lies behind the cursor's end: it is not replayed once
            // more.
            if !more {
                break;
            }
            // A service that names no place to go on from would be asked the same for ever.
            from = Some(cursor.context("the service says that there is more, and not where")?);
            if let Some(until) = until_ms {
                Clock::system().sleep_until(UnixMillis(until.0)).await;
            }
        }
        bar.finish_and_clear();
        if !client.is_json() {
            let tasks = out::many(total, "task");
            out::line(&format!("{tasks} {}{done}", if which.dry_run { "would be " } else { "" }))?;
        }
        Ok(Code::Done)
    }

    /// The most tasks that are gone over.
    async fn most(&self, which: &Which) -> anyhow::Result<u64> {
        if !which.task_ids.is_empty() {
            return Ok(which.task_ids.len() as u64);
        }
        let answer = self.client.post("/delay/topic/get", &topic::of(&which.topic)).await?;
        Ok(answer.checked::<TopicShown<IgnoredAny>>()?.counts.dead)
    }
}

fn causes(Causes { causes, more }: Causes) -> String {
    if causes.is_empty() {
        return "no dead tasks".into();
    }
    let row = |cause: &Cause| {
        let Cause { reason, count, first_ms, last_ms, task_id } = cause;
        vec![count.cell(), first_ms.cell(), last_ms.cell(), task_id.cell(), reason.cell()]
    };
    let rows: Vec<_> = causes.iter().map(row).collect();
    let table = table::columns(&["count", "first", "last", "one_of_them", "reason"], &rows);
    if more { format!("{table}\nand more that one call does not go over") } else { table }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn which(line: &[&str]) -> Option<Which> {
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

    /// The usage named the ids alone.
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
            {"reason": "503 Service Unavailable", "count": 12, "first_ms": 0, "last_ms": 1000, "task_id": 7},
        ]});
        insta::assert_snapshot!(causes(answer), @r#"
        COUNT  FIRST                     LAST                      ONE_OF_THEM  REASON
        12     1970-01-01T00:00:00.000Z  1970-01-01T00:00:01.000Z  7            503 Service Unavailable
        "#);
    }
}
