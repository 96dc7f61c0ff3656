//! The disk under Redis' append-only file: full, or slow.
//!
//! With a full disk, a Redis with `appendfsync everysec` answers MISCONF to every write, including
//! claims and settles, and goes on trying. With `always` it ends. In both cases callers get 503,
//! and everything confirmed is there when there is room again.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::account::Cause;
use crate::full::Full;
use crate::probe::Probe;
use crate::redis_server::Server;
use crate::redis_trouble::{LEASE, Scene, WHILE};
use crate::strace::Injected;
use crate::{is_long, rounds};

/// The room that is left for Redis itself to fill.
const ROOM: u64 = 64 << 10;

/// How long a fault lasts: longer than a lease, so that running calls can be claimed again when it
/// ends.
fn a_while() -> Duration {
    if is_long() { 2 * LEASE } else { WHILE }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_while_it_syncs_every_second() {
    let fills = rounds(1, 3);
    let server = Server::on_small_disk(&["--appendfsync", "everysec"]);
    let mut scene =
        Scene::set(&format!("Redis' AOF on a full disk ×{fills}, everysec"), &server).await;
    let account = scene.account.clone();
    for _ in 0..fills {
        let away = account.fault(Cause::StoreAway);
        let full = Full::but(&server.disk(), ROOM);
        scene.is_refused("the disk of the AOF is full").await;
        tokio::time::sleep(a_while()).await;
        let cannot_write =
            server.command(&["INFO", "persistence"]).contains("aof_last_write_status:err");
        scene.row.promise(cannot_write, "Redis could write to a full disk");
        drop(full);
        scene.is_accepted_again().await;
        drop(away);
    }
    scene.end().await;
}

/// A restart while the disk is full has no effect: Redis ends again with the first write.
#[tokio::test(flavor = "multi_thread")]
async fn full_while_it_syncs_always() {
    let fills = rounds(1, 3);
    let mut server = Server::on_small_disk(&["--appendfsync", "always"]);
    let mut scene =
        Scene::set(&format!("Redis' AOF on a full disk ×{fills}, always"), &server).await;
    let account = scene.account.clone();
    for _ in 0..fills {
        let away = account.fault(Cause::StoreAway);
        let full = Full::but(&server.disk(), ROOM);
        let ended = crate::wait_until(|| !server.is_running()).await;
        scene.row.promise(ended, "Redis did not end although it cannot write");
        scene.is_refused("Redis has ended").await;
        tokio::task::block_in_place(|| {
            server.kill();
            server.restart();
        });
        let ended = crate::wait_until(|| !server.is_running()).await;
        scene.row.promise(ended, "Redis did not end again although its disk is still full");
        tokio::time::sleep(a_while()).await;
        drop(full);
        tokio::task::block_in_place(|| {
            server.kill();
            server.restart();
        });
        scene.is_accepted_again().await;
        drop(away);
    }
    scene.end().await;
}

/// A disk that takes more than a second for a write and longer for an fsync. Redis goes on for two
/// seconds during an fsync, and then stops until its write is done. So it is available and silent
/// in turns.
#[tokio::test(flavor = "multi_thread")]
async fn slow_while_it_syncs_every_second() {
    /// The times of a write and an fsync, in microseconds. Both exceed the timeout of a call to the
    /// store.
    const SLOW: [(u32, u32); 2] = [(1_500_000, 3_000_000), (3_000_000, 1_000_000)];
    let length = Duration::from_secs(rounds(4, 9) as u64);
    let server = Server::start();
    let mut scene =
        Scene::set("Redis everysec, its AOF's writes and fsyncs slowed by 1 to 3 s", &server).await;
    let account = scene.account.clone();
    let question = json!({"topic": "drill.0", "task_id": 1}).to_string();
    let (mut slowest, mut silent, mut back) = (Duration::ZERO, 0, Duration::ZERO);
    for (write, fsync) in &SLOW[..if is_long() { 2 } else { 1 }] {
        let away = account.fault(Cause::StoreAway);
        let refused = account.refusals();
        let slow = tokio::task::block_in_place(|| slowed(&server, *write, *fsync));
        let probe = Probe::start(
            scene.fleet.member(0).url("/delay/task/get"),
            question.clone(),
            Duration::from_millis(50),
        );
        tokio::time::sleep(length).await;
        let answers = probe.stop().await;
        slowest = slowest.max(answers.iter().map(|answer| answer.took).max().unwrap_or_default());
        silent += answers.iter().filter(|answer| answer.status == 503).count();
        let other = answers.iter().find(|answer| ![503, 404].contains(&answer.status));
        scene.row.promise(other.is_none(), format!("an answer with a slow disk was {other:?}"));
        scene.row.promise(
            account.refusals() > refused,
            "no add was refused: the disk was not slow enough",
        );
        back = back.max(back_after(slow, &mut scene).await);
        drop(away);
    }
    scene.row.promise(silent > 0, "Redis was never silent");
    let most = slowest.max(account.slowest_answer());
    scene.row.promise(most < Duration::from_secs(5), format!("an answer took {most:?}"));
    scene.row.promise_in_time(
        slowest < Duration::from_millis(1_300),
        format!("an answer took {slowest:?}"),
    );
    scene.row.promise_in_time(
        back < Duration::from_secs(2),
        format!("it was ready again after {back:?}"),
    );
    scene.row.note(format!(
        "slowest answer to a get {} ms, to an add {} ms; {silent} gets refused; back in {} ms",
        slowest.as_millis(),
        account.slowest_answer().as_millis(),
        back.as_millis()
    ));
    scene.end().await;
}

/// Slows the writes and fsyncs of the append-only file alone.
fn slowed(server: &Server, write: u32, fsync: u32) -> Injected {
    let home = server.command(&["CONFIG", "GET", "dir"]).lines().nth(1).unwrap().to_owned();
    let file = format!("{home}/appendonlydir/appendonly.aof.1.incr.aof");
    assert!(std::path::Path::new(&file).exists(), "{file}");
    let (write, fsync) = (
        format!("inject=write:delay_enter={write}"),
        format!("inject=fdatasync,fsync:delay_enter={fsync}"),
    );
    Injected::into_calls(
        server.pid(),
        &["-P", &file, "-e", "trace=write,fdatasync,fsync", "-e", &write, "-e", &fsync],
    )
}

/// Ends the fault. Returns how long delayd takes to be ready again.
async fn back_after(slow: Injected, scene: &mut Scene) -> Duration {
    tokio::task::block_in_place(|| drop(slow));
    let since = Instant::now();
    scene.fleet.member(0).wait_until_ready(200).await;
    scene.is_accepted_again().await;
    since.elapsed()
}
