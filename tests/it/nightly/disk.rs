//! The disk of the embedded store hangs for seconds: how soon each call is answered meanwhile.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::disk::{add_until_refused, due, failing, file, set_up, waiting};
use crate::program::{Answer, Program, service};
use crate::receiver::Receiver;
use crate::{Kept, poll};

/// How long a hanging fsync takes.
const HANG: Duration = Duration::from_secs(6);

/// A power cut may undo a worker's lease and its settle: the task is called again. So they wait for
/// no fsync.
#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_fsync_delays_no_callback() {
    let (kept, receiver) = (Kept::embedded(), Receiver::start().await);
    set_up(&kept).await;
    // strace counts the calls of each thread.
    let inject = format!("fsync,fdatasync:delay_enter={}:when=2+", HANG.as_micros());
    let under = failing(&inject, &file(&kept, "-wal"));
    let delayd =
        Program::start_under(under, &kept.store, &[service("message.call", &receiver)]).await;
    let mut later = due();
    later["delay"] = json!("1s");
    let id = delayd.add(later).await.id();
    let hangs = Instant::now();
    add_until_refused(&delayd, waiting()).await;
    delayd.wait_for_state("t", id, "delivered").await;
    assert!(hangs.elapsed() < HANG, "it waited for the fsync: {:?}", hangs.elapsed());
}

/// Returns the answer to a call, which must come long before the disk answers.
async fn promptly(delayd: &Program, verb: &str, body: Value) -> Answer {
    let started = Instant::now();
    let answer = delayd.post(&format!("/delay/task/{verb}"), body.to_string()).await;
    assert!(started.elapsed() < HANG / 2, "{verb} waited for the disk: {:?}", started.elapsed());
    answer
}

/// One fsync takes several seconds. It may belong to an add, a pull, an ack or a nack. Pulls and
/// acks used to wait for their whole timeout. A refused pull may still have leased its task for
/// hours: the task must come back without waiting for that.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_a_hanging_disk_and_no_task_is_lost() {
    futures_util::future::join_all((10..16).map(hang_at)).await;
}

/// The fsync with this number hangs.
async fn hang_at(commit: u32) {
    let kept = Kept::embedded();
    set_up(&kept).await;
    let under = failing(
        &format!("fsync,fdatasync:delay_enter={}:when={commit}", HANG.as_micros()),
        &file(&kept, "-wal"),
    );
    let delayd = Program::start_under(under, &kept.store, &[]).await;
    let (mut unsettled, mut acked) = (BTreeSet::new(), BTreeSet::new());
    let pull = json!({"topic": "p", "lease": "12h"});
    'well: for _ in 0..20 {
        for verb in ["ack", "nack"] {
            let added =
                promptly(&delayd, "add", json!({"topic": "p", "delay": 0, "content": {}})).await;
            if is_refused(&added) {
                break 'well;
            }
            unsettled.insert(added.id());
            let pulled = promptly(&delayd, "pull", pull.clone()).await;
            if is_refused(&pulled) {
                break 'well;
            }
            let settle =
                json!({"topic": "p", "task_id": pulled.id(), "receipt": pulled.body["receipt"]});
            let settled = promptly(&delayd, verb, settle.clone()).await;
            let is_refused = is_refused(&settled);
            if verb == "ack" {
                // Not confirmed: it may have been done or not.
                unsettled.remove(&pulled.id());
                acked.insert(pulled.id());
            }
            if is_refused {
                for verb in ["ack", "nack"] {
                    assert!(is_refused_by_silence(&promptly(&delayd, verb, settle.clone()).await));
                }
                break 'well;
            }
        }
    }
    assert!(is_refused_by_silence(&promptly(&delayd, "pull", pull).await), "{}", delayd.log());

    // After the hang, every task without an ack can be pulled, and no lease of a refused pull
    // remains.
    let mut found = BTreeSet::new();
    let finds_all = async || {
        let answer = delayd.post("/delay/task/pull", json!({"topic": "p"}).to_string()).await;
        found.extend(answer.body["task_id"].as_u64());
        found.is_superset(&unsettled)
    };
    assert!(
        poll::until(finds_all).await,
        "fsync {commit}: {unsettled:?} and {acked:?}, but {found:?}:\n{}",
        delayd.log()
    );
}

/// Every read of the log takes several seconds. Callers used to wait for the whole timeout of a
/// request.
#[tokio::test(flavor = "multi_thread")]
async fn no_read_waits_for_a_hanging_disk_and_adds_go_on() {
    let kept = Kept::embedded();
    set_up(&kept).await;
    let under = failing(&format!("pread64:delay_enter={}", HANG.as_micros()), &file(&kept, "-wal"));
    let delayd = Program::start_under(under, &kept.store, &[]).await;
    // Only the writer has in memory what was just written. Everything else reads it from the log.
    let id = delayd.add(waiting()).await.id();
    for (verb, body) in [
        ("task/get", json!({"topic": "t", "task_id": id})),
        ("task/pull", json!({"topic": "t", "task_id": id})),
        ("task/list", json!({"topic": "t", "state": "scheduled"})),
        ("dead/causes", json!({"topic": "t"})),
        ("dead/replay", json!({"topic": "t", "all": true})),
        ("topic/list", json!({})),
        ("topic/get", json!({"topic": "t"})),
        ("topic/forecast", json!({"topic": "t", "step": "1h"})),
        ("destination/list", json!({})),
        // The store has to read whether this topic exists.
        ("task/add", json!({"topic": "new", "delay": 60, "content": {}})),
    ] {
        let started = Instant::now();
        let answer = delayd.post(&format!("/delay/{verb}"), body.to_string()).await;
        assert!(
            started.elapsed() < HANG / 2,
            "{verb} waited for the disk: {:?}",
            started.elapsed()
        );
        // The thread of the polls may have read the topics before the disk hung.
        if verb == "topic/list" && answer.status == 200 {
            continue;
        }
        assert!(is_refused_by_silence(&answer), "{verb}: {answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{verb}: {answer:?}");
    }
    delayd.add(waiting()).await;
}

fn is_refused(answer: &Answer) -> bool {
    assert!([200, 503].contains(&answer.status), "{answer:?}");
    answer.status == 503
}

fn is_refused_by_silence(answer: &Answer) -> bool {
    is_refused(answer) && answer.body["dm_error"] == json!(2003)
}
