//! Calls while the store does not answer.

use super::*;

#[tokio::test]
async fn a_store_out_of_reach_is_an_unconfirmed_503() {
    let ack = r#"{"topic":"t","task_id":7,"receipt":"r"}"#;
    for (path, body) in [
        (ADD, TASK.to_owned()),
        (ADD_BATCH, format!(r#"{{"tasks":[{TASK},{{"topic":1}}]}}"#)),
        ("/delay/task/pull", r#"{"topic":"t"}"#.to_owned()),
        ("/delay/task/ack", ack.to_owned()),
        ("/delay/task/nack", ack.to_owned()),
    ] {
        assert_eq!(
            answer(post_of(path, body.clone())).await.headers()["retry-after"],
            "1",
            "{path}"
        );
        let said = check(post_of(path, body), 503, 2003).await["error_msg"].to_string();
        assert!(said.contains("not confirmed") && !said.contains("127.0.0.1"), "{path}: {said}");
    }
}

/// Reads once answered "not confirmed", though they have nothing to confirm.
#[tokio::test]
async fn a_read_without_a_store_is_to_be_tried_again() {
    for (path, body) in [
        ("/delay/task/get", r#"{"topic":"t","task_id":"7"}"#),
        ("/delay/task/list", r#"{"topic":"t","state":"dead"}"#),
        ("/delay/dead/causes", r#"{"topic":"t"}"#),
        ("/delay/task/get", r#"{"topic":"t","key":"k"}"#),
        ("/delay/task/find", r#"{"task_id":"7"}"#),
        ("/delay/task/search", r#"{"topic":"t","state":"dead","text":"x"}"#),
        ("/delay/topic/list", "{}"),
        ("/delay/topic/list", r#"{"sort":"name"}"#),
        ("/delay/topic/get", r#"{"topic":"t"}"#),
        ("/delay/topic/forecast", r#"{"topic":"t","step":"1h"}"#),
        ("/delay/forecast", "{}"),
        ("/delay/destination/list", "{}"),
        ("/delay/schedule/get", r#"{"topic":"t","schedule":"s"}"#),
        ("/delay/schedule/list", r#"{"topic":"t"}"#),
    ] {
        let answer = check(post_of(path, body), 503, 2003).await;
        assert_eq!(answer["error_msg"], "the store is unavailable: try again", "{path}");
    }
}
