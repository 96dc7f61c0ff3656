//! The embedded store's disk fails under the real program. strace makes system calls on the store's
//! own files return errors.
//!
//! `when=N+` lets the first calls pass, so that some calls are answered before the disk fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::Kept;
use crate::poll;
use crate::program::{self, Program, StoreAt, run, serve_with, service};
use crate::receiver::{self, Receiver};

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
pub fn failing(inject: &str, file: &Path) -> Command {
    let mut strace = strace(inject.split(':').next().unwrap(), file, Path::new("/dev/null"));
    strace.args(["-e", &format!("inject={inject}")]);
    strace
}

pub fn file(kept: &Kept, suffix: &str) -> PathBuf {
    let StoreAt::Embedded(folder) = &kept.store else { unreachable!() };
    folder.join(format!("delayd.db{suffix}"))
}

/// A task that waits, and a task that is called at once.
pub fn waiting() -> Value {
    json!({"topic": "t", "delay": "1h", "content": {}})
}

pub fn due() -> Value {
    json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}})
}

/// Adds until an add is refused. Returns the accepted ids. The refused add gets 503, unless the
/// port is closed already.
pub async fn add_until_refused(delayd: &Program, task: Value) -> Vec<u64> {
    let mut accepted = Vec::new();
    for _ in 0..10_000 {
        let answer = delayd.try_post("/delay/task/add", task.to_string()).await;
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
    stops_and_recovers(&Kept::embedded(), "pwrite64:error=EIO:when=100+", "-wal", waiting()).await;
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
pub async fn set_up(kept: &Kept) {
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

#[tokio::test]
async fn a_damaged_file_is_one_clear_line() {
    let folder = program::folder();
    let path = folder.path().join("delayd.db");
    let mut bytes = b"SQLite format 3\0".to_vec();
    bytes.resize(8_192, 0xa5);
    std::fs::write(&path, bytes).unwrap();
    let set = format!("store.embedded.path={path:?}");
    let (code, _, log) = run(serve_with(&[set])).await;
    assert!([1, 78].contains(&code), "{code}: {log}");
    assert!(log.contains(&path.display().to_string()) && !log.contains("panicked"), "{log}");
}
