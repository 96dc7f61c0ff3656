//! How topics are shown.

use delayd_wire::{Count, TaskState, TopicListed, TopicShown, Topics};
use serde_json::{Map, Value};

use crate::cli::cell::{self, Cell};
use crate::cli::table::{self, Column};

/// The counts, in the order of the life cycle.
pub(in crate::cli) fn counts(count: &Count) -> [(TaskState, u64); 6] {
    let Count { scheduled, leased, delivered, dead, cancelled, expired } = *count;
    TaskState::ALL.map(|state| {
        let count = match state {
            TaskState::Scheduled => scheduled,
            TaskState::Leased => leased,
            TaskState::Delivered => delivered,
            TaskState::Dead => dead,
            TaskState::Cancelled => cancelled,
            TaskState::Expired => expired,
        };
        (state, count)
    })
}

/// The text for an empty list.
const NONE: &str = "no topics";

/// A topic whose tasks are overdue is not active, whatever delays them.
pub(in crate::cli) fn state(paused: bool, overdue: bool) -> &'static str {
    match (paused, overdue) {
        (true, true) => "paused, overdue",
        (true, false) => "paused",
        (false, true) => "overdue",
        (false, false) => "active",
    }
}

/// A page of `/delay/topic/list`.
pub(super) fn counted(topics: &[TopicListed]) -> String {
    if topics.is_empty() {
        return NONE.into();
    }
    let columns: [Column<TopicListed>; 7] = [
        ("topic", |listed| listed.topic.cell()),
        ("state", |listed| state(listed.paused, listed.overdue).into()),
        ("scheduled", |listed| listed.counts.as_ref().map(|counts| counts.scheduled).cell()),
        ("leased", |listed| listed.counts.as_ref().map(|counts| counts.leased).cell()),
        ("dead", |listed| listed.counts.as_ref().map(|counts| counts.dead).cell()),
        ("next due", |listed| listed.next_due_ms.cell()),
        ("overdue since", |listed| listed.oldest_overdue_ms.cell()),
    ];
    table::of(topics, &columns)
}

/// The answer of `/delay/topic/list` with the names of all topics.
pub(super) fn names(Topics { topics, .. }: Topics) -> String {
    if topics.is_empty() {
        return NONE.into();
    }
    let columns: [Column<TopicListed>; 3] = [
        ("topic", |listed| listed.topic.cell()),
        ("shards", |listed| listed.shards.cell()),
        ("state", |listed| state(listed.paused, listed.overdue).into()),
    ];
    table::of(&topics, &columns)
}

/// The answer of `/delay/topic/get` and `/set`.
pub(super) fn one(shown: TopicShown) -> String {
    let mut pairs = vec![
        ("topic", shown.topic.cell()),
        ("shards", shown.shards.cell()),
        ("state", state(shown.paused, shown.overdue).into()),
        ("paused since", shown.paused_since_ms.cell()),
        ("next due", shown.next_due_ms.cell()),
        ("oldest overdue", shown.oldest_overdue_ms.cell()),
        ("history since", shown.history_since_ms.cell()),
    ];
    pairs.extend(counts(&shown.counts).map(|(state, count)| (state.as_str(), count.cell())));
    let policy = settings(&shown.policy);
    pairs.extend(policy.iter().map(|(name, value)| (name.as_str(), value.clone())));
    table::pairs(&pairs)
}

/// The settings of a topic by name. The parts of `retry` and `history` have a line each.
fn settings(policy: &Map<String, Value>) -> Vec<(String, String)> {
    let shown = |value: &Value| cell::settings(value).cell();
    let parts = |(name, value): (&String, &Value)| match (name.as_str(), value) {
        ("retry" | "history", Value::Object(parts)) => {
            parts.iter().map(|(part, value)| (format!("{name}.{part}"), shown(value))).collect()
        }
        _ => vec![(name.clone(), shown(value))],
    };
    policy.iter().flat_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_topic_is_shown_with_its_counts_and_what_it_sets_itself() {
        let answer = json!({
            "topic": "report", "shards": 1,
            "policy": {"retry": {"max_attempts": 3}, "rate": "100/s"}, "paused": true,
            "paused_since_ms": 0, "overdue": true,
            "counts": {"scheduled": 5, "leased": 0, "delivered": 0,
                "dead": 1, "cancelled": 0, "expired": 0},
            "next_due_ms": null, "oldest_overdue_ms": 1000, "history_since_ms": null,
        });
        insta::assert_snapshot!(one(serde_json::from_value(answer).unwrap()), @r#"
        topic               report
        shards              1
        state               paused, overdue
        paused since        1970-01-01T00:00:00.000Z
        next due            -
        oldest overdue      1970-01-01T00:00:01.000Z
        history since       -
        scheduled           5
        leased              0
        delivered           0
        dead                1
        cancelled           0
        expired             0
        rate                100/s
        retry.max_attempts  3
        "#);
    }

    #[test]
    fn a_page_of_topics_has_their_counts() {
        assert_eq!(counted(&[]), "no topics");
        let counts = json!({"scheduled": 5, "leased": 1, "delivered": 0,
            "dead": 2, "cancelled": 0, "expired": 0});
        let topics = json!([
            {"topic": "a", "shards": 1, "paused": false, "overdue": true, "counts": counts,
             "oldest_overdue_ms": 1000},
            {"topic": "b", "shards": 1, "paused": true, "overdue": false},
        ]);
        let topics: Vec<TopicListed> = serde_json::from_value(topics).unwrap();
        insta::assert_snapshot!(counted(&topics), @r#"
        TOPIC  STATE    SCHEDULED  LEASED  DEAD  NEXT DUE  OVERDUE SINCE
        a      overdue  5          1       2     -         1970-01-01T00:00:01.000Z
        b      paused   -          -       -     -         -
        "#);
    }

    #[test]
    fn topics_are_named_one_a_line() {
        let names = |answer| names(serde_json::from_value(answer).unwrap());
        assert_eq!(names(json!({"topics": []})), "no topics");
        let one = names(json!({"topics": [{"topic": "a", "shards": 4, "paused": true}]}));
        insta::assert_snapshot!(one, @r#"
        TOPIC  SHARDS  STATE
        a      4       paused
        "#);
    }
}
