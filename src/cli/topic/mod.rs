//! `delayd topic …`: shows and changes topics.

use clap::Subcommand;
use delayd_wire::{
    Forecast, ForecastRequest, MisfirePolicy, Nothing, Paused, Purged, ResumeRequest, Step,
    TopicListRequest, TopicPurgeRequest, TopicRequest, TopicSort, Topics,
};

use super::args::one_of;
use super::cell::Cell;
use super::client::ServerArgs;
use super::paging::Paging;
use super::{Code, output, progress, table};
use crate::model::task::Topic;
use delayd_wire::Span;

mod set;
pub(super) mod shown;

/// Show, set, pause, resume, empty and remove topics.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd topic list
  delayd topic list --match 'order.*' --sort dead --limit 20
  delayd topic set report --rate 100/s --quota 100000 --misfire skip
  delayd topic pause report
  delayd topic resume report --misfire fire
  delayd topic forecast report --step 1h --steps 24
  delayd topic purge report --confirm report")]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(ListArgs),
    /// Show a topic: its settings, exact counts, and next due or overdue tasks
    Get(TopicArgs),
    Set(set::Args),
    /// Pause a topic: none of its tasks is called or pulled; adds continue
    Pause(TopicArgs),
    /// End a pause
    Resume(ResumeArgs),
    Purge(PurgeArgs),
    /// Delete a topic without any tasks, and its settings
    Delete(TopicArgs),
    /// Count the tasks that fall due in each of the next steps
    Forecast(ForecastArgs),
}

/// List all topics, or pages of topics with their counts.
///
/// With --match, --sort, --limit, --cursor or --all, the topics are listed with exact counts. An
/// order by counts follows those of the service's last samples.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only topics whose name contains this text, or begins with it if it ends with *
    #[arg(long = "match", value_name = "TEXT")]
    matches: Option<String>,
    /// The order; topics with most tasks, or the earliest due time, come first
    #[arg(
        long,
        value_name = "ORDER",
        value_parser = one_of(&TopicSort::ALL, TopicSort::as_str)
    )]
    sort: Option<TopicSort>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct TopicArgs {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct ResumeArgs {
    /// The topic
    topic: Topic,
    /// What happens to tasks that fell due meanwhile: delivered late, expired, or dead; by default
    /// the setting of the topic applies
    #[arg(
        long,
        value_name = "MISFIRE",
        value_parser = one_of(&MisfirePolicy::ALL, MisfirePolicy::as_str)
    )]
    misfire: Option<MisfirePolicy>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Delete all tasks of a topic that are not leased.
///
/// Waiting tasks, dead tasks and the history are deleted permanently, in several calls if needed.
#[derive(Debug, clap::Args)]
struct PurgeArgs {
    /// The topic
    topic: Topic,
    /// The name of the topic again, as a confirmation
    #[arg(long, value_name = "TOPIC")]
    confirm: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct ForecastArgs {
    /// The topic
    topic: Topic,
    /// The length of a step: 1s to 366d
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    step: Span,
    /// How many steps
    #[arg(
        long,
        value_name = "N",
        default_value_t = 24,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    steps: u16,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    match args.verb {
        Verb::List(args) => return list(args).await,
        Verb::Get(TopicArgs { topic, server }) => {
            server.ask("/delay/topic/get", &of(&topic), shown::one).await?;
        }
        Verb::Set(args) => set::run(args).await?,
        Verb::Pause(TopicArgs { topic, server }) => {
            let shown = |paused: Paused| format!("paused since {}", paused.paused_since_ms.cell());
            server.ask("/delay/topic/pause", &of(&topic), shown).await?;
        }
        Verb::Resume(ResumeArgs { topic, misfire, server }) => {
            let body = ResumeRequest { topic, misfire };
            server.ask("/delay/topic/resume", &body, |_: Nothing| "resumed".into()).await?;
        }
        Verb::Purge(args) => return purge(args).await,
        Verb::Delete(TopicArgs { topic, server }) => {
            server.ask("/delay/topic/delete", &of(&topic), |_: Nothing| "deleted".into()).await?;
        }
        Verb::Forecast(ForecastArgs { topic, step, steps, server }) => {
            let body = ForecastRequest { topic, step, steps: Some(steps.into()) };
            server.ask("/delay/topic/forecast", &body, forecast).await?;
        }
    }
    Ok(Code::Done)
}

async fn list(args: ListArgs) -> anyhow::Result<Code> {
    let ListArgs { matches, sort, paging, server } = args;
    if matches.is_none() && sort.is_none() && !paging.is_given() {
        server.ask("/delay/topic/list", &TopicListRequest::ALL, shown::names).await?;
        return Ok(Code::Done);
    }
    let client = server.client()?;
    let read = async |limit, cursor| {
        // At least one field, so that the answer has counts.
        let sort = Some(sort.unwrap_or_default());
        let body = TopicListRequest { matches: matches.clone(), sort, limit, trend: None, cursor };
        let page: Topics = client.call("/delay/topic/list", &body).await?;
        Ok((page.topics, page.cursor))
    };
    paging.show(&client, read, shown::counted).await
}

/// The body of a request that has only a topic.
pub(super) fn of(topic: &Topic) -> TopicRequest {
    TopicRequest { topic: topic.clone() }
}

/// Repeats the call until nothing is left to delete.
async fn purge(args: PurgeArgs) -> anyhow::Result<Code> {
    let PurgeArgs { topic, confirm, server } = args;
    let body = TopicPurgeRequest { topic, confirm };
    let client = server.client()?;
    let (mut total, bar) = (0, progress::counting("tasks deleted"));
    loop {
        let Purged { count, leased, more } = client.call("/delay/topic/purge", &body).await?;
        total += count;
        bar.set_position(total);
        if more && count > 0 {
            continue;
        }
        bar.finish_and_clear();
        if !client.is_json() {
            let left = match leased {
                0 => String::new(),
                leased => format!("; {leased} leased tasks end with their leases"),
            };
            output::line(&format!("{} deleted{left}", output::many(total, "task")))?;
        }
        anyhow::ensure!(!more, "the service reported more tasks, but deleted none; try again");
        return Ok(Code::Done);
    }
}

fn forecast(Forecast { overdue, steps, .. }: Forecast) -> String {
    let mut rows = vec![vec!["overdue".to_owned(), overdue.cell()]];
    rows.extend(steps.iter().map(|Step { until_ms, count }| vec![until_ms.cell(), count.cell()]));
    table::columns(&["until", "count"], &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_forecast_begins_with_what_is_overdue() {
        let answer = json!({"now_ms": 0, "overdue": 3, "steps": [
            {"until_ms": 3_600_000, "count": 12}, {"until_ms": 7_200_000, "count": 0},
        ]});
        insta::assert_snapshot!(forecast(serde_json::from_value(answer).unwrap()), @r#"
        UNTIL                     COUNT
        overdue                   3
        1970-01-01T01:00:00.000Z  12
        1970-01-01T02:00:00.000Z  0
        "#);
    }
}
