//! `delayd topic set`: sets what a topic has instead of the configuration.

use serde::Serialize;

use super::shown;
use crate::cli::args::{self, one_of};
use crate::cli::client::ServerArgs;
use crate::model::task::{MisfirePolicy, Mode, Topic, TopicPolicy};
use delayd_wire::{
    AtMost, Backoff, Number, Rate, Span, TopicHistoryGiven, TopicRetryGiven, TopicSetRequest,
    TopicSetting,
};

/// Create a topic, or change its settings.
///
/// Options that are given are set, the others stay; settings named by --reset follow the
/// configuration again. The options of a task take precedence over those of its topic.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd topic set report --shards 4
  delayd topic set report --max-attempts 5 --backoff 5s,5m,30m --timeout 10s
  delayd topic set report --rate 100/s --concurrency 32 --quota 100000
  delayd topic set report --reset rate,quota")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    /// The number of lanes, 1 to 256; only when the topic is created
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// Attempts before a task is dead, 1 to 1000
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The wait between attempts: 30s, a list such as 5s,5m,30m, or a JSON object
    #[arg(long, value_name = "BACKOFF", value_parser = args::backoff)]
    backoff: Option<Backoff>,
    /// Statuses after which a task is not retried
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    final_statuses: Option<Vec<u16>>,
    /// How long one call may take, 100ms to 10m
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// Whether tasks are called back or pulled by default
    #[arg(long, value_name = "MODE", value_parser = one_of(&Mode::ALL, Mode::as_str))]
    mode: Option<Mode>,
    /// The maximum rate of calls per instance, such as 100/s
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// The maximum number of concurrent calls per instance
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// The maximum number of waiting and leased tasks
    #[arg(long, value_name = "N")]
    quota: Option<u32>,
    /// How long ended tasks can be read, 1m to 3650d
    #[arg(long, value_name = "DURATION")]
    history_keep: Option<Span>,
    /// How many ended tasks can be read
    #[arg(long, value_name = "N")]
    history_max: Option<u32>,
    /// What happens to tasks that fall due in a pause: delivered late, expired, or dead
    #[arg(
        long,
        value_name = "MISFIRE",
        value_parser = one_of(&MisfirePolicy::ALL, MisfirePolicy::as_str)
    )]
    misfire: Option<MisfirePolicy>,
    /// How late a task may be because of delayd or of the store, 1ms to 2h
    #[arg(long, value_name = "DURATION")]
    lateness_objective: Option<Span>,
    /// Pause the topic as well
    #[arg(long)]
    paused: bool,
    /// Follow the configuration again: retry, timeout, mode, rate, concurrency, quota, history,
    /// misfire, lateness_objective
    #[arg(
        long,
        value_name = "SETTING",
        value_delimiter = ',',
        value_parser = TopicPolicy::SETTINGS
    )]
    reset: Option<Vec<String>>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    args.server.ask("/delay/topic/set", &body(&args), shown::one).await
}

fn body(args: &Args) -> impl Serialize {
    let retry = TopicRetryGiven {
        max_attempts: args.max_attempts.map(Number::from),
        backoff: args.backoff.clone(),
        final_statuses: args
            .final_statuses
            .as_ref()
            .map(|all| AtMost(all.iter().copied().map(Number::from).collect())),
    };
    let history =
        TopicHistoryGiven { keep: args.history_keep, max: args.history_max.map(Number::from) };
    TopicSetRequest {
        topic: args.topic.clone(),
        shards: args.shards.map(Number::from),
        retry: Some(retry).filter(|retry| !retry.is_empty()),
        timeout: args.timeout,
        mode: args.mode,
        rate: args.rate,
        concurrency: args.concurrency.map(Number::from),
        quota: args.quota.map(Number::from),
        history: Some(history).filter(|history| !history.is_empty()),
        misfire: args.misfire,
        lateness_objective: args.lateness_objective,
        paused: args.paused.then_some(true),
        reset: args
            .reset
            .as_ref()
            .map(|names| AtMost(names.iter().filter_map(|name| TopicSetting::of(name)).collect())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;

    type Alone = crate::cli::args::Alone<Args>;

    #[test]
    fn only_what_is_given_is_asked_for() {
        let check = |line: &[&str], expected: Value| {
            let args = Alone::try_parse_from([&["set", "t"], line].concat()).unwrap().args;
            assert_eq!(serde_json::to_value(body(&args)).unwrap(), expected);
        };
        check(&[], json!({"topic": "t"}));
        check(
            &[
                "--max-attempts",
                "3",
                "--final-statuses",
                "404,410",
                "--history-max",
                "5",
                "--reset",
                "rate,quota",
            ],
            json!({
                "topic": "t", "retry": {"max_attempts": 3, "final_statuses": [404, 410]},
                "history": {"max": 5},
                "reset": ["rate", "quota"],
            }),
        );
        check(
            &[
                "--shards",
                "4",
                "--rate",
                "1/s",
                "--mode",
                "pull",
                "--misfire",
                "skip",
                "--lateness-objective",
                "250ms",
                "--paused",
                "--history-keep",
                "1h",
            ],
            json!({
                "topic": "t", "shards": 4, "rate": "1/s", "mode": "pull", "misfire": "skip",
                "lateness_objective": "250ms", "paused": true,
                "history": {"keep": "3600000ms"},
            }),
        );
    }
}
