//! `delayd stats`: all topics at a glance.

use delayd_wire::ErrorCode;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};

use super::client::{ServerArgs, cell, fields, moment};
use super::topic::shown::{STATES, yes};
use super::{Code, out, table};

/// Topics that are asked for at a time.
const AT_A_TIME: usize = 8;

/// Show the exact counts of every topic by state, and since when something is overdue.
///
/// A topic whose OVERDUE stays behind is paused, held back, or has nobody who pulls it. With --json there is one topic a line.
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
    let listed = client.post("/delay/topic/list", &Map::new()).await?.checked()?;
    let topics = listed["topics"].as_array().cloned().unwrap_or_default();
    let asked = topics.into_iter().map(|topic| {
        let client = &client;
        async move {
            let body = fields([("topic", Some(json!(topic["topic"])))]);
            let answer = client.post("/delay/topic/get", &body).await?;
            // One that was deleted meanwhile is left out.
            if answer.code() == ErrorCode::NotFound { Ok(None) } else { answer.checked().map(Some) }
        }
    });
    let answers: Vec<Option<Value>> = stream::iter(asked).buffered(AT_A_TIME).try_collect().await?;
    let topics: Vec<Value> = answers.into_iter().flatten().collect();
    if !client.is_json() {
        out::line(&shown(&topics))?;
        return Ok(Code::Done);
    }
    for topic in topics {
        out::line(&topic.to_string())?;
    }
    Ok(Code::Done)
}

fn shown(topics: &[Value]) -> String {
    if topics.is_empty() {
        return "no topics".into();
    }
    let row = |topic: &Value| {
        let mut row = vec![cell(&topic["topic"]), yes(&topic["paused"])];
        row.extend(STATES.map(|state| cell(&topic["counts"][state])));
        row.extend([moment(&topic["oldest_overdue_ms"]), moment(&topic["next_due_ms"])]);
        row
    };
    let head = [&["topic", "paused"][..], &STATES, &["overdue since", "next due"]].concat();
    table::columns(&head, &topics.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_is_a_line() {
        assert_eq!(shown(&[]), "no topics");
        let topic = json!({
            "topic": "orders", "paused": false, "next_due_ms": 1000, "oldest_overdue_ms": null,
            "counts": {"scheduled": 5, "leased": 1, "delivered": 100, "dead": 0, "cancelled": 2, "expired": 0},
        });
        insta::assert_snapshot!(shown(&[topic]), @r#"
        TOPIC   PAUSED  SCHEDULED  LEASED  DELIVERED  DEAD  CANCELLED  EXPIRED  OVERDUE SINCE  NEXT DUE
        orders  no      5          1       100        0     2          0        -              1970-01-01T00:00:01.000Z
        "#);
    }
}
