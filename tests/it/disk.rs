//! The embedded store's disk fails under the real program. strace makes system calls on the store's
//! own files return errors.
//!
//! `when=N+` lets the first calls pass, so that some calls are answered before the disk fails.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Kept;
use crate::poll;
use crate::program::{self, Answer, Program, StoreAt, command, run, service};
use crate::receiver::{self, Receiver};

/// How long a hanging fsync takes.
const HANG: Duration = Duration::from_secs(6);

/// strace around the program. It records these calls on that file.
fn strace(calls: &str, file: &Path, log: &Path) -> Command {
    assert!(
        Command::new("strace").arg("-V").output().is_ok_and(|said| said.status.success()),
        "these tests need strace: apt-get install -y strace (scripts/test does so)"
    );
    let mut strace = Command::new("strace");
    // The standard error of the program stays its own.
    strace.args(["-f", "-qq", "-e", &format!("trace={calls}"), "-o"]).arg(log).arg("-P").arg(file);
    strace
}

/// strace around the program. `inject` is strace's own syntax. Calls on `file` fail.
fn failing(inject: &str, file: &Path) -> Command {
    let mut strace = strace(inject.split(':').next().unwrap(), file, Path::new("/dev/null"));
    strace.args(["-e", &format!("inject={inject}")]);
    strace
}

fn file(kept: &Kept, suffix: &str) -> PathBuf {
    let StoreAt::Embedded(folder) = &kept.store else { unreachable!() };
    folder.join(format!("delayd.db{suffix}"))
}

/// A task that waits, and a task that is called at once.
fn waiting() -> Value {
    json!({"topic": "t", "delay": "1h", "content": {}})
}

fn due() -> Value {
    json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}})
}

/// Adds until an add is refused. Returns the accepted ids. Each answer must be quick. The refused
/// add gets 503, unless the port is closed already.
async fn add_until_refused(delayd: &Program, task: Value) -> Vec<u64> {
    let mut accepted = Vec::new();
    for _ in 0..10_000 {
        let started = Instant::now();
        let answer = delayd.try_post("/delay/task/add", task.to_string()).await;
        assert!(started.elapsed() < Duration::from_secs(5), "the add hung instead of failing");
        match answer {
            Some(answer) if answer.status == 200 => accepted.push(answer.id()),
            Some(answer) => {
                assert_eq!(
                    (answer.status, &answer.body["dm_error"]),
                    (503, &json!(2003)),
                    "{answer:?}"
                );
                return accepted;
            }
            None => return accepted,
        }
    }
    panic!("the disk never failed:\n{}", delayd.log());
}

/// The disk fails at some moment. Callers get 503, the program ends with code 1, and the next start
/// finds every confirmed task.
async fn stops_and_recovers(kept: &Kept, inject: &str, suffix: &str, task: Value) {
    let mut delayd =
        Program::start_under(failing(inject, &file(kept, suffix)), &kept.store, &[]).await;
    let accepted = add_until_refused(&delayd, task).await;
    assert!(!accepted.is_empty(), "nothing was accepted before the disk failed");
    assert_eq!(delayd.ended().await.code(), Some(1), "{}", delayd.log());
    let log = delayd.log();
    assert_eq!(log.matches("store has stopped").count(), 1, "{log}");
    assert!(!log.contains("panicked"), "{log}");

    let delayd = kept.start(&[]).await;
    for id in accepted {
        assert_eq!(delayd.task("t", id).await["state"], "scheduled");
    }
    delayd.add(waiting()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_fsync_of_the_log_that_fails_ends_the_program_and_loses_nothing() {
    stops_and_recovers(&Kept::embedded(), "fsync,fdatasync:error=EIO:when=15+", "-wal", waiting())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_the_log_that_fails_ends_the_program_and_loses_nothing() {
    stops_and_recovers(&Kept::embedded(), "pwrite64:error=EIO:when=60+", "-wal", waiting()).await;
}

/// Another thread copies the log into the database file. Confirmed tasks are in the log and must
/// not be lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_fails_ends_the_program_and_loses_nothing() {
    let kept = Kept::embedded();
    set_up(&kept).await;
    let large = json!({"topic": "t", "delay": "1h", "content": {"pad": "x".repeat(100_000)}});
    stops_and_recovers(&kept, "fsync,fdatasync:error=EIO:when=1+", "", large).await;
}

/// Starts and stops once, so that the file exists: the set-up of a new one syncs it.
async fn set_up(kept: &Kept) {
    let mut delayd = kept.start(&[]).await;
    delayd.add(waiting()).await;
    delayd.signal("TERM");
    assert_eq!(delayd.ended().await.code(), Some(0));
}

/// The failing fsync may belong to a claim, a settle or an add. Every accepted task is called, if
/// necessary by the next process.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_or_settle_that_fails_leaves_its_task_to_the_next_process() {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    for commit in 3..7 {
        let kept = Kept::embedded();
        set_up(&kept).await;
        let under =
            failing(&format!("fsync,fdatasync:error=EIO:when={commit}+"), &file(&kept, "-wal"));
        let mut delayd = Program::start_under(under, &kept.store, &settings).await;
        let accepted = add_until_refused(&delayd, due()).await;
        assert_eq!(delayd.ended().await.code(), Some(1), "{}", delayd.log());
        let delayd = kept.start(&settings).await;
        for id in accepted {
            delayd.wait_for_state("t", id, "delivered").await;
        }
    }
}

/// A caller may survive the machine, and may rely on its answer. A consumer's lease has to be
/// synced, as an add has to.
#[tokio::test(flavor = "multi_thread")]
async fn every_promised_answer_waits_for_its_fsync() {
    let (kept, calls) = (Kept::embedded(), program::folder());
    set_up(&kept).await;
    let receiver = Receiver::answering(|_| receiver::Answer::AtTheGate).await;
    let log = calls.path().join("fsyncs");
    let under = strace("fsync,fdatasync", &file(&kept, "-wal"), &log);
    let delayd =
        Program::start_under(under, &kept.store, &[service("message.call", &receiver)]).await;
    let syncs = || std::fs::read_to_string(&log).unwrap().matches("sync(").count();

    let before = syncs();
    let id = delayd.add(due()).await.id();
    assert!(syncs() > before, "an add was answered before its fsync");
    receiver.wait_for(1).await;
    let before = syncs();
    receiver.open_gate();
    delayd.wait_for_state("t", id, "delivered").await;
    assert!(poll::until(async || syncs() > before).await, "a settle is never synced");

    delayd.add(json!({"topic": "p", "delay": 0, "content": {}})).await;
    let before = syncs();
    let pulled = delayd
        .post("/delay/task/pull", json!({"topic": "p", "lease": "1m"}).to_string())
        .await
        .ok();
    assert!(syncs() > before, "a consumer's claim was answered before its fsync: {pulled:?}");
    let settle = json!({"topic": "p", "task_id": pulled.id(), "receipt": pulled.body["receipt"]});
    let before = syncs();
    delayd.post("/delay/task/ack", settle.to_string()).await.ok();
    assert!(syncs() > before, "an ack was answered before its fsync");
}

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

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_for_a_while_refuses_adds_and_takes_them_again() {
    is_full_for_a_while("ENOSPC").await;
}

/// SQLite calls it an I/O error, and the program used to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_quota_that_is_used_up_for_a_while_refuses_adds_and_nothing_else() {
    is_full_for_a_while("EDQUOT").await;
}

/// The disk is full for a while (`when=first..last`), whatever the file system says. Adds get 503,
/// the service goes on, and later adds succeed without a restart.
async fn is_full_for_a_while(error: &str) {
    let kept = Kept::embedded();
    let receiver = Receiver::start().await;
    let under = failing(&format!("pwrite64:error={error}:when=100..101"), &file(&kept, "-wal"));
    let delayd =
        Program::start_under(under, &kept.store, &[service("message.call", &receiver)]).await;
    let accepted = add_until_refused(&delayd, waiting()).await;
    let adds = async || delayd.post("/delay/task/add", waiting().to_string()).await.status == 200;
    assert!(poll::until(adds).await, "adds still fail:\n{}", delayd.log());
    let id = delayd.add(due()).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
    for id in accepted {
        assert_eq!(delayd.task("t", id).await["state"], "scheduled");
    }
    let log = delayd.log();
    assert_eq!(
        log.matches("is full: adds are refused").count(),
        1,
        "the log must say once that the disk is full:\n{log}"
    );
    assert_eq!(
        log.matches("has room again").count(),
        1,
        "the log must say once that there is room again:\n{log}"
    );
}

/// Returns the answer to a call, which must come long before the disk answers.
async fn promptly(delayd: &Program, verb: &str, body: Value) -> Answer {
    let started = Instant::now();
    let answer = delayd.post(&format!("/delay/task/{verb}"), body.to_string()).await;
    assert!(started.elapsed() < HANG / 2, "{verb} waited for the disk: {:?}", started.elapsed());
    answer
}

fn is_refused(answer: &Answer) -> bool {
    assert!([200, 503].contains(&answer.status), "{answer:?}");
    answer.status == 503
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
        assert!(is_refused_by_silence(&answer), "{verb}: {answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{verb}: {answer:?}");
    }
    delayd.add(waiting()).await;
}

fn is_refused_by_silence(answer: &Answer) -> bool {
    is_refused(answer) && answer.body["dm_error"] == json!(2003)
}

#[tokio::test]
async fn a_damaged_file_is_one_clear_line() {
    let folder = program::folder();
    let path = folder.path().join("delayd.db");
    let mut bytes = b"SQLite format 3\0".to_vec();
    bytes.resize(8_192, 0xa5);
    std::fs::write(&path, bytes).unwrap();
    let set = format!("store.embedded.path={path:?}");
    let mut serve = command(&["http.bind=\"127.0.0.1:0\"".into(), set]);
    serve.arg("serve");
    let (code, _, log) = run(serve).await;
    assert!([1, 78].contains(&code), "{code}: {log}");
    assert!(log.contains(&path.display().to_string()) && !log.contains("panicked"), "{log}");
}
