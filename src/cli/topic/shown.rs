//! Topics as people look at them.

use serde_json::Value;

use crate::cli::client::{cell, moment};
use crate::cli::table;

/// The states in the order of the road.
pub(in crate::cli) const STATES: [&str; 6] = ["scheduled", "leased", "delivered", "dead", "cancelled", "expired"];

/// The answer of `/delay/topic/list`.
pub(super) fn names(answer: &Value) -> String {
    let Some(topics) = answer["topics"].as_array().filter(|topics| !topics.is_empty()) else {
        return "no topics".into();
    };
    let row = |topic: &Value| vec![cell(&topic["topic"]), cell(&topic["shards"]), yes(&topic["paused"])];
    table::columns(&["topic", "shards", "paused"], &topics.iter().map(row).collect::<Vec<_>>())
}

/// The answer of `/delay/topic/get` and `/set`.
pub(super) fn one(answer: &Value) -> String {
    let paused =
        if answer["paused"] == true { format!("since {}", moment(&answer["paused_since_ms"])) } else { "no".into() };
    let mut pairs = vec![
        ("topic", cell(&answer["topic"])),
        ("shards", cell(&answer["shards"])),
        ("paused", paused),
        ("next due", moment(&answer["next_due_ms"])),
        ("oldest overdue", moment(&answer["oldest_overdue_ms"])),
        ("history since", moment(&answer["history_since_ms"])),
    ];
    pairs.extend(STATES.map(|state| (state, cell(&answer["counts"][state]))));
    let policy = settings(&answer["policy"]);
    pairs.extend(policy.iter().map(|(name, value)| (name.as_str(), value.clone())));
    table::pairs(&pairs)
}

/// What a topic sets itself, by name; what stands together as `retry` and `history` has a line for each part.
fn settings(policy: &Value) -> Vec<(String, String)> {
    let all = policy.as_object().into_iter().flatten();
    let parts = |(name, value): (&String, &Value)| match (name.as_str(), value) {
        ("retry" | "history", Value::Object(parts)) => {
            parts.iter().map(|(part, value)| (format!("{name}.{part}"), cell(value))).collect()
        }
        _ => vec![(name.clone(), cell(value))],
    };
    all.flat_map(parts).collect()
}

/// A truth as a cell.
pub(in crate::cli) fn yes(value: &Value) -> String {
    if value == true { "yes" } else { "no" }.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_topic_is_shown_with_its_counts_and_what_it_sets_itself() {
        let answer = json!({
            "topic": "report", "shards": 1, "policy": {"retry": {"max_attempts": 3}, "rate": "100/s"}, "paused": true, "paused_since_ms": 0,
            "counts": {"scheduled": 5, "leased": 0, "delivered": 0, "dead": 1, "cancelled": 0, "expired": 0},
            "next_due_ms": null, "oldest_overdue_ms": 1000, "history_since_ms": null,
        });
        insta::assert_snapshot!(one(&answer), @r#"
        topic               report
        shards              1
        paused              since 1970-01-01T00:00:00.000Z
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
    fn topics_are_named_one_a_line() {
        assert_eq!(names(&json!({"topics": []})), "no topics");
        insta::assert_snapshot!(names(&json!({"topics": [{"topic": "a", "shards": 4, "paused": true}]})), @r#"
        TOPIC  SHARDS  PAUSED
        a      4       yes
        "#);
    }
}
