use serde_json::{Value, json};

use super::*;
use crate::api::testing::services;
use crate::model::clock::UnixMillis;

fn read_with(more: Value) -> Result<Definition, Error> {
    let services = services();
    let rules = TaskRules {
        now: UnixMillis(1_795_234_567_000),
        max_delay: Duration::from_secs(3650 * 86_400),
        content_limit: 100,
        services: &services,
        idempotency_window: Duration::from_secs(86_400),
        mode_of: &|_| None,
        header_key: None,
    };
    read(&with(more), &rules).map(|(_, _, definition)| definition)
}

fn with(more: Value) -> Vec<u8> {
    let mut body = json!({"topic": "t", "schedule": "nightly", "cron": "30 2 * * *",
        "content": {"a": 1}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

#[test]
fn each_field_that_a_schedule_cannot_have_is_refused_with_a_sentence() {
    let check = |more: Value, says: &str| {
        let said = read_with(more).unwrap_err().message();
        assert!(said.starts_with(says), "{said}");
    };
    check(json!({"key": "k"}), "key: expected no key");
    check(json!({"idempotency_key": "k"}), "idempotency_key: expected none");
    check(json!({"delay": 1}), "delay: expected cron or every");
    check(json!({"timing_moment": 1_900_000_000}), "timing_moment: expected cron or every");
    check(json!({"at": "2026-11-26 09:00"}), "at: expected cron or every");
    check(json!({"flow": "a"}), "flow: expected none");
    check(json!({"overlap": "queue"}), "overlap: must be one of \"allow\", \"skip\"");
    check(json!({"misfire": "fire"}), "misfire: ");
    check(json!({"every": "1h"}), "cron: expected either cron or every, got both");
    check(json!({"schedule": ""}), "schedule: must be 1 to 128 characters");
    check(json!({"schedule": null}), "schedule: is missing");
    check(json!({"topic": null}), "topic: is missing");
    check(json!({"content": null}), "content: is missing");
    check(json!({"every": 0, "cron": null}), "every: ");
    check(json!({"cron": null}), "cron: expected either cron or every, got neither");
    check(json!({"cron": "0 0 30 2 *"}), "cron: expected an expression that fires");
    check(json!({"zone": "Moon"}), "zone: expected an offset such as");
    check(json!({"start": "soon"}), "start: expected a time such as");
    check(json!({"end": 7}), "end: ");
    check(json!({"retries": 3}), "unknown field \"retries\"");
    check(json!({"content": "x".repeat(101)}), "content: ");
}

#[test]
fn null_is_absent_and_defaults_are_filled_in() {
    let read = |more: Value| read_with(more).unwrap();
    let plain = read(json!({"zone": null, "every": null, "overlap": null}));
    assert_eq!(plain, read(json!({"zone": "UTC", "misfire": "once", "overlap": "allow"})));
    let zone = |name: &str| read(json!({"zone": name})).text();
    assert_eq!(zone("Asia/Shanghai"), zone("asia/shanghai"));
}
