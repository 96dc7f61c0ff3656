//! The identity of a store. Two tasks of two stores never share a `webhook-id`, and a task keeps
//! its own.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::poll;
use crate::program::{Program, command, folder, run, service};
use crate::receiver::{Answer, Receiver, Seen, now_ms};
use crate::{Kept, on_both_stores};

on_both_stores!(
    a_task_keeps_its_webhook_id_over_restarts_kills_and_a_move,
    a_new_store_id_applies_to_later_tasks,
    a_format_is_shown_and_raised
);

fn webhook_id(call: &Seen) -> String {
    call.headers["webhook-id"].to_str().unwrap().to_owned()
}

fn task(n: usize) -> Value {
    json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/", "n": n}})
}

/// The first id that a store draws in a second is the same for all stores. A receiver that knew
/// tasks by `webhook-id` used to take four of these eight for duplicates.
#[tokio::test(flavor = "multi_thread")]
async fn two_deployments_share_no_webhook_id_where_they_share_task_ids() {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (one, two) = (Kept::embedded(), Kept::embedded());
    let (one, two) = (one.start(&settings).await, two.start(&settings).await);
    let mut sent = 0;
    // Both stores have to draw their first id of the same second.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1_005 - now_ms() as u64 % 1_000)).await;
        let tasks: Vec<Value> = (0..4).map(task).collect();
        let (here, there) = tokio::join!(one.add_all(&tasks), two.add_all(&tasks));
        sent += 8;
        let seen = receiver.wait_for(sent).await.split_off(sent - 8);
        if here == there {
            assert_eq!(seen.iter().map(|call| call.id).collect::<HashSet<_>>().len(), 4);
            assert_eq!(seen.iter().map(webhook_id).collect::<HashSet<_>>().len(), 8, "{here:?}");
            return;
        }
    }
    panic!("the two never gave the same ids");
}

async fn a_task_keeps_its_webhook_id_over_restarts_kills_and_a_move(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Status(500)).await;
    let settings = [service("message.call", &receiver)];
    let delayd = kept.start(&settings).await;
    let retried = json!({
        "topic": "t", "delay": 0, "key": "k", "backoff": {"kind": "fixed", "every": "2s"},
        "content": {"sn": "message.call", "url": "/"}});
    let id = delayd.add(retried).await.id();
    let first = webhook_id(&receiver.wait_for(1).await[0]);
    let (store, number) = first.split_once('-').unwrap();
    assert!(number == id.to_string() && store.len() == 16, "{first}");
    assert_eq!(delayd.task("t", id).await["webhook_id"], *first);
    delayd.kill();

    let mut delayd = kept.start(&settings).await;
    assert_eq!(webhook_id(&receiver.wait_for(2).await[1]), first, "after kill -9");
    delayd.signal("TERM");
    delayd.ended().await;

    let delayd = kept.start(&settings).await;
    assert_eq!(webhook_id(&receiver.wait_for(3).await[2]), first, "after a restart");
    let record = json!({"topic": "t", "task_ids": [id]}).to_string();
    let record = delayd.post("/delay/task/records", record).await.ok().body["records"][0].clone();
    assert_eq!(record["options"]["origin"], store, "{record}");

    // To another store and back.
    let other = Kept::embedded();
    let away = other.start(&settings).await;
    move_all(&delayd, &away).await;
    let before = receiver.seen().len();
    let again = receiver.wait_for(before + 1).await;
    assert_eq!(webhook_id(&again[before]), first, "after a move");
    let moved = away.task("t", id).await;
    assert_eq!(
        (&moved["webhook_id"], &moved["options"]["origin"]),
        (&json!(first), &Value::Null),
        "{moved}"
    );
    let pushed = json!({
        "topic": "t", "delay": "1h", "key": "k", "content": {"sn": "message.call", "url": "/late"},
    });
    assert_eq!(away.add(pushed).await.id(), id);
    assert_eq!(away.task("t", id).await["webhook_id"], *first, "pushed back by its key");
    move_all(&away, &delayd).await;
    assert_eq!(delayd.task("t", id).await["webhook_id"], *first, "at home");
}

async fn move_all(old: &Program, new: &Program) {
    let mut mover = command(&[]);
    mover.args([
        "move",
        "--server",
        &old.url(""),
        "--to",
        &new.url(""),
        "--margin",
        "10ms",
        "--json",
    ]);
    let (code, output, error) = run(mover).await;
    assert_eq!(code, 0, "{output}{error}\n{}", new.log());
    let summary: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&summary["moved"], &summary["left"]), (&json!(1), &json!(0)), "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_on_one_redis_are_one_store() {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let kept = Kept::redis();
    let (one, two) = tokio::join!(kept.start(&settings), kept.start(&settings));
    let tasks: Vec<Value> = (0..50).map(task).collect();
    tokio::join!(one.add_all(&tasks), two.add_all(&tasks));
    let seen = receiver.wait_for(100).await;
    let stores: HashSet<String> =
        seen.iter().map(|call| webhook_id(call)[..16].to_owned()).collect();
    assert_eq!(stores.len(), 1, "{stores:?}");
    let id = seen[0].id;
    assert_eq!(one.task("t", id).await["webhook_id"], two.task("t", id).await["webhook_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_keeps_webhook_ids() {
    let (from, into) = (Kept::embedded(), Kept::redis());
    let (old, new) = (from.start(&[]).await, into.start(&[]).await);
    let id =
        old.add(json!({"topic": "t", "delay": "1h", "mode": "pull", "content": "x"})).await.id();
    let first = old.task("t", id).await["webhook_id"].clone();
    let folder = folder();
    let file = folder.path().join("tasks.ndjson");
    let client = async |delayd: &Program, words: &[&str]| {
        let mut client = command(&[]);
        client.args(words).arg("--server").arg(delayd.url(""));
        let (code, output, error) = run(client).await;
        assert_eq!(code, 0, "{output}{error}");
        output
    };
    std::fs::write(&file, client(&old, &["export", "--topic", "t"]).await).unwrap();
    client(&new, &["import", file.to_str().unwrap()]).await;
    assert_eq!(new.task("t", id).await["webhook_id"], first);
}

async fn a_new_store_id_applies_to_later_tasks(kept: Kept) {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let mut delayd = kept.start(&settings).await;
    delayd.add(task(0)).await;
    let first = webhook_id(&receiver.wait_for(1).await[0])[..16].to_owned();
    let new_id = || {
        let mut new_id = command(&kept.store.sets());
        new_id.args(["store", "new-id", "--yes"]);
        run(new_id)
    };
    if matches!(kept.store, crate::StoreAt::Embedded(_)) {
        let (code, output, error) = new_id().await;
        assert!(code == 78 && error.contains("another process works on"), "{output}{error}");
        delayd.signal("TERM");
        delayd.ended().await;
    }
    let (code, output, error) = new_id().await;
    assert!(code == 0 && output.contains(&first), "{output}{error}");
    if matches!(kept.store, crate::StoreAt::Embedded(_)) {
        delayd = kept.start(&settings).await;
    }
    // Instances on Redis keep running and take up the new id.
    let mut n = 0;
    let another = async || {
        n += 1;
        delayd.add(task(n)).await;
        let second = webhook_id(&receiver.wait_for(n + 1).await[n])[..16].to_owned();
        (second != first).then_some(second)
    };
    let Some(second) = poll::answer(another).await else {
        panic!("no instance took up the new id:\n{}", delayd.log())
    };
    assert!(output.contains(&second), "{output}");
}

async fn a_format_is_shown_and_raised(kept: Kept) {
    let format = |more: &[&str]| {
        let mut format = command(&kept.store.sets());
        format.arg("format").args(more);
        run(format)
    };
    let delayd = kept.start(&[]).await;
    delayd.add(json!({"topic": "t", "delay": 3600, "mode": "pull", "content": {"n": 1}})).await;
    let newest = delayd::store::FORMAT;
    let says = format!("The store has format {newest}, the newest that this version knows.\n");
    let shown = format(&[]).await;
    assert_eq!((shown.0, &*shown.1), (0, &*says), "{shown:?}");
    let raised = format(&["--raise"]).await;
    match kept.store {
        crate::StoreAt::Embedded(_) => {
            assert!(raised.0 == 78 && raised.2.contains("while nothing has it open"), "{raised:?}");
        }
        _ => assert_eq!((raised.0, &*raised.1), (0, &*says), "{raised:?}"),
    }
}
