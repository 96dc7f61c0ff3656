//! `delayd stats`: shows the counts of all topics.

use delayd_wire::{ErrorCode, TaskState, TopicListRequest, TopicRequest, TopicShown, Topics};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::cell::Cell;
use super::client::ServerArgs;
use super::topic::shown::{counts, state};
use super::{Code, output, table};

/// Topics that are read at the same time.
const AT_A_TIME: usize = 8;

/// Show the exact counts of all topics by state, and since when tasks are overdue.
///
/// If OVERDUE SINCE does not advance, the topic is paused or held, its service fails, or it has no
/// consumer. With --json one topic is printed per line.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd stats
  delayd stats --json --server http://10.0.0.5:7799")]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let client = args.server.client()?;
    let listed: Topics =
        client.post("/delay/topic/list", &TopicListRequest::ALL).await?.checked()?;
    let asked = listed.topics.into_iter().map(|listed| {
        let client = &client;
        async move {
            let body = TopicRequest { topic: listed.topic };
            let answer = client.post("/delay/topic/get", &body).await?;
            // A topic that was deleted meanwhile is omitted.
            if answer.code() == ErrorCode::NotFound {
                return anyhow::Ok(None);
            }
            let text = answer.text.clone();
            Ok(Some((text, answer.checked::<TopicShown>()?)))
        }
    });
    let answers: Vec<Option<(String, TopicShown)>> =
        stream::iter(asked).buffered(AT_A_TIME).try_collect().await?;
    let (texts, topics): (Vec<String>, Vec<TopicShown>) = answers.into_iter().flatten().unzip();
    if !client.is_json() {
        output::line(&shown(&topics))?;
        return Ok(Code::Done);
    }
    for text in texts {
        output::line(&text)?;
    }
    Ok(Code::Done)
}

fn shown(topics: &[TopicShown]) -> String {
    if topics.is_empty() {
        return "no topics".into();
    }
    let row = |topic: &TopicShown| {
        let state = state(topic.paused, topic.overdue);
        let mut row = vec![topic.topic.cell(), state.into()];
        row.extend(counts(&topic.counts).map(|(_, count)| count.cell()));
        row.extend([topic.oldest_overdue_ms.cell(), topic.next_due_ms.cell()]);
        row
    };
    let states = TaskState::ALL.map(TaskState::as_str);
    let head = [&["topic", "state"][..], &states, &["overdue since", "next due"]].concat();
    table::columns(&head, &topics.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_topic_is_a_line() {
        assert_eq!(shown(&[]), "no topics");
        let topic = json!({
            "topic": "orders", "shards": 1, "policy": {}, "paused": false, "next_due_ms": 1000,
            "oldest_overdue_ms": null,
            "counts": {
                "scheduled": 5, "leased": 1, "delivered": 100,
                "dead": 0, "cancelled": 2, "expired": 0,
            },
        });
        let topic: TopicShown = serde_json::from_value(topic).unwrap();
        let table = shown(&[topic]);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let head =
            "TOPIC STATE SCHEDULED LEASED DELIVERED DEAD CANCELLED EXPIRED OVERDUE SINCE NEXT DUE";
        assert_eq!(rows[0].join(" "), head);
        assert_eq!(rows[1].join(" "), "orders active 5 1 100 0 2 0 - 1970-01-01T00:00:01.000Z");
    }
}
