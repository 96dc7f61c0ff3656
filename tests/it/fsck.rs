//! `delayd fsck`, beside a running delayd and alone with the store.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::program::{StoreAt, command, run, service};
use crate::receiver::Receiver;
use crate::redis_server::ports;
use crate::{Kept, on_both_stores, redis_server};

on_both_stores!(
    a_running_store_is_in_order,
    a_task_that_would_never_be_called_is_found_repaired_and_called,
    a_missing_store_is_an_error
);

/// Runs fsck on the store. Returns its exit code, and its standard output followed by its standard
/// error.
async fn fsck(store: &StoreAt, words: &[&str]) -> (i32, String) {
    let mut fsck = command(&store.sets());
    fsck.arg("fsck").args(words);
    let (code, output, error) = run(fsck).await;
    (code, output + &error)
}

fn file(store: &StoreAt) -> PathBuf {
    match store {
        StoreAt::Embedded(folder) => folder.join("delayd.db"),
        StoreAt::Redis(..) | StoreAt::Set(_) => panic!("this store is not a file"),
    }
}

/// Removes the only task from its schedule, with a direct change in the store.
fn misplace(kept: &Kept) {
    match &kept.store {
        StoreAt::Embedded(_) => {
            let db = rusqlite::Connection::open(file(&kept.store)).unwrap();
            db.execute_batch("DELETE FROM schedule; UPDATE destination SET earliest = NULL")
                .unwrap();
        }
        StoreAt::Set(_) => panic!("this test runs on a store of its own"),
        StoreAt::Redis(_, prefix) => {
            let lane = "{t:0}";
            let schedule = format!("{prefix}:DELAY_SIMPLE_TOPIC_TASK-{lane}:message.call");
            let destinations = format!("{prefix}:DELAY_TOPIC_DESTINATIONS-{lane}");
            assert_eq!(
                redis_server::shared().command(&["DEL", &schedule, &destinations]).trim(),
                "2"
            );
        }
    }
}

async fn a_running_store_is_in_order(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let content = json!({"sn": "message.call", "url": "/", "data": "content-payload"});
    let tasks: Vec<Value> =
        (0..3_000).map(|i| json!({"topic": "t", "delay": i % 2, "content": content})).collect();
    delayd.add_all(&tasks).await;
    // While the first tasks are called.
    for _ in 0..5 {
        let (code, said) = fsck(&kept.store, &[]).await;
        assert_eq!((code, said.trim()), (0, "checked 3000 tasks and 1 lane: no findings"));
    }
    receiver.wait_for(3_000).await;
}

async fn a_task_that_would_never_be_called_is_found_repaired_and_called(kept: Kept) {
    let receiver = Receiver::start().await;
    let services = [service("message.call", &receiver)];
    let delayd = kept.start(&services).await;
    let content = json!({"sn": "message.call", "url": "/", "data": "content-payload"});
    let id = delayd.add(json!({"topic": "t", "delay": "1h", "content": content})).await.id();
    let is_embedded = matches!(kept.store, StoreAt::Embedded(_));
    if is_embedded {
        let (code, refused) = fsck(&kept.store, &["--repair"]).await;
        assert!(
            code == 78 && refused.contains("stop it") && refused.lines().count() == 1,
            "{refused}"
        );
    }
    delayd.kill();
    misplace(&kept);

    for _ in 0..2 {
        let (code, said) = fsck(&kept.store, &[]).await;
        assert!(
            code == 1 && said.contains("body-without-place") && said.contains(&id.to_string()),
            "{said}"
        );
        assert!(!said.contains("content-payload"), "{said}");
    }
    let (code, said) = fsck(&kept.store, &["--repair", "--json"]).await;
    assert_eq!(code, 0, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    // The embedded store counts its tasks as well, and the count is now wrong.
    let found = if is_embedded { 2 } else { 1 };
    assert_eq!(
        (&said["tasks"], &said["found"], &said["repaired"]),
        (&json!(1), &json!(found), &json!(found)),
        "{said}"
    );
    assert_eq!(
        said["findings"][0]["first"][0],
        json!({"lane": "t:0", "subject": id.to_string()}),
        "{said}"
    );
    for words in [&["--repair"][..], &[]] {
        let (code, said) = fsck(&kept.store, words).await;
        assert_eq!((code, said.trim()), (0, "checked 1 task and 1 lane: no findings"));
    }

    let delayd = kept.start(&services).await;
    let task = delayd.task("t", id).await;
    assert_eq!(task["state"], "scheduled");
    assert!(
        task["due_ms"].as_i64() > task["created_ms"].as_i64().map(|ms| ms + 3_500_000),
        "the task was early: {task}"
    );
}

/// A mistyped path must not be reported as being in order.
async fn a_missing_store_is_an_error(kept: Kept) {
    match &kept.store {
        StoreAt::Embedded(folder) => {
            let elsewhere = StoreAt::Embedded(folder.join("no").join("such"));
            for words in [&["--repair"][..], &[]] {
                let (code, said) = fsck(&elsewhere, words).await;
                assert!(code == 78 && said.contains("there is no store at"), "{said}");
            }
            assert!(!folder.join("no").exists(), "fsck created a folder");
        }
        StoreAt::Set(_) => panic!("this test runs on a store of its own"),
        StoreAt::Redis(..) => {
            let (code, said) = fsck(&StoreAt::Redis(ports::take(), "p".into()), &[]).await;
            assert!(code == 1 && said.contains("unavailable"), "{said}");
        }
    }
}

/// The next service deals with lease, file and log of the process that crashed.
#[tokio::test]
async fn fsck_of_a_file_changes_nothing() {
    let kept = Kept::embedded();
    let delayd = kept.start(&[]).await;
    delayd.add(json!({"topic": "p", "delay": 0, "content": {"a": 1}})).await;
    delayd.post("/delay/task/pull", r#"{"topic":"p","lease":"1h"}"#).await.ok();
    delayd.kill();
    let files = || {
        let path = file(&kept.store);
        ["", "-wal"].map(|suffix| {
            std::fs::read(path.with_file_name(format!("delayd.db{suffix}"))).unwrap_or_default()
        })
    };
    let before = files();
    let (code, said) = fsck(&kept.store, &[]).await;
    assert_eq!(code, 0, "{said}");
    assert!(files() == before, "fsck changed the file or its log");
    let (code, said) = fsck(&kept.store, &["--repair"]).await;
    assert_eq!(code, 0, "{said}");
    let db = rusqlite::Connection::open(file(&kept.store)).unwrap();
    let leased: i64 = db
        .query_row("SELECT count(*) FROM progress WHERE leased = 1", [], |row| row.get(0))
        .unwrap();
    assert_eq!(leased, 1, "a repair must not void a lease");
}
