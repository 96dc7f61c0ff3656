//! A clock jumps by an hour or a day. No task may be early by the store's clock, no lane may stall,
//! and nothing may spin.
//!
//! libfaketime gives delayd or Redis another wall clock. The monotonic clock is the machine's.

use std::time::Duration;

use serde_json::{Value, json};

use super::processor_time;
use crate::Kept;
use crate::fake_time::FakeTime;
use crate::program::{self, Program, StoreAt, service};
use crate::receiver::{Answer, Receiver, Seen};
use crate::redis_server::Server;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

fn task(delay: &str) -> Value {
    json!({"topic": "t", "delay": delay, "content": {"sn": "message.call", "url": "/"}})
}

/// delayd with its own wall clock.
async fn with_clock(store: &StoreAt, clock: &FakeTime, receiver: &Receiver) -> Program {
    let mut serve = program::serve(store, &[service("message.call", receiver)]);
    serve.envs(clock.variables());
    Program::launch(serve).await
}

/// How late a call came by a clock that is `ahead` seconds ahead of the machine's. Fails if it was
/// early.
fn lateness_ms(call: &Seen, ahead: i64) -> i64 {
    let late = call.lateness_ms() + ahead * 1_000;
    assert!(late >= 0, "the call was {} ms early by the store's clock", -late);
    late
}

/// Waits for the call of a task.
async fn call_of(receiver: &Receiver, id: u64) -> Seen {
    let mut count = 1;
    loop {
        let seen = receiver.wait_for(count).await;
        match seen.iter().find(|call| call.id == id) {
            Some(call) => return call.clone(),
            None => count = seen.len() + 1,
        }
    }
}

/// No task may be called twice, whatever the clocks do.
fn assert_each_came_once(receiver: &Receiver) {
    let mut ids: Vec<u64> = receiver.seen().iter().map(|call| call.id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "a task came twice");
}

/// Fails if the process spins while nothing is due. Under libfaketime each reading of the clock
/// reads a file.
async fn assert_idle(pid: u32, after: &str) {
    let before = processor_time(pid);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let spent = processor_time(pid) - before;
    assert!(spent < 60, "{after}: it used {spent} of 200 hundredths of a second");
}

/// More than one poll interval plus room for a slow machine, and far less than any of the jumps.
const SOON_MS: i64 = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn the_machines_clock_jumps_under_the_embedded_store() {
    let receiver = Receiver::start().await;
    let folder = program::folder();
    let clock = FakeTime::right(folder.path());
    let delayd = with_clock(&program::embedded(folder.path()), &clock, &receiver).await;
    let (mut last_id, mut ahead) = (0, 0);
    for jump in [HOUR, -HOUR, DAY, -DAY] {
        // Due after the jump forward, and delayed by the jump back.
        let far = delayd.add(task(&format!("{}s", jump.abs() - 60))).await.id();
        assert!(far > last_id, "ids must grow when the clock jumps");
        ahead += jump;
        clock.set(ahead);
        assert_idle(delayd.pid(), &format!("after a jump of {jump} s")).await;
        if jump > 0 {
            lateness_ms(&call_of(&receiver, far).await, ahead);
        } else {
            assert_eq!(delayd.task("t", far).await["state"], "scheduled");
        }
        last_id = delayd.add(task("1s")).await.id();
        assert!(last_id > far, "ids must grow when the clock jumps");
        let late = lateness_ms(&call_of(&receiver, last_id).await, ahead);
        assert!(late < SOON_MS, "after a jump of {jump} s a task came {late} ms late");
    }
    // A start with a clock that was set back.
    delayd.wait_for_state("t", last_id, "delivered").await;
    delayd.kill();
    ahead -= HOUR;
    clock.set(ahead);
    let delayd = with_clock(&program::embedded(folder.path()), &clock, &receiver).await;
    let id = delayd.add(task("0s")).await.id();
    assert!(id > last_id, "ids must grow when the clock jumps");
    lateness_ms(&call_of(&receiver, id).await, ahead);
    assert_each_came_once(&receiver);
}

/// A call is running when the clock jumps. Its lease then counts as expired, in both directions.
/// The task must not be called a second time, and the call's success counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_call_outlives_a_jump_of_the_machines_clock() {
    for jump in [DAY, -DAY, -HOUR] {
        let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
        let folder = program::folder();
        let clock = FakeTime::right(folder.path());
        let delayd = with_clock(&program::embedded(folder.path()), &clock, &receiver).await;
        let id = delayd.add(task("0s")).await.id();
        receiver.wait_for(1).await;
        clock.set(jump);
        assert_idle(delayd.pid(), "a call under way").await;
        receiver.open_gate();
        delayd.wait_for_state("t", id, "delivered").await;
        assert_eq!(receiver.seen().len(), 1, "after a jump of {jump} s a task was called again");
    }
}

/// The instance's clock is not the store's. Tasks must come by the clock of Redis.
#[tokio::test(flavor = "multi_thread")]
async fn an_instances_clock_jumps_beside_redis() {
    let receiver = Receiver::start().await;
    let folder = program::folder();
    let clock = FakeTime::right(folder.path());
    let kept = Kept::redis();
    let delayd = with_clock(&kept.store, &clock, &receiver).await;
    for ahead in [HOUR, 0, -HOUR, DAY, -DAY] {
        // The lane sleeps towards this task when the clock jumps.
        let id = delayd.add(task("2s")).await.id();
        clock.set(ahead);
        let late = lateness_ms(&call_of(&receiver, id).await, 0);
        assert!(late < SOON_MS, "with the instance {ahead} s ahead, {late} ms late");
        assert_idle(delayd.pid(), &format!("with the instance {ahead} s ahead")).await;
    }
}

/// The clock of Redis jumps, as after a failover to a node with another clock.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_redis_jumps() {
    let receiver = Receiver::start().await;
    let folder = program::folder();
    let clock = FakeTime::right(folder.path());
    let redis = Server::in_surroundings(&[], &clock.variables());
    let delayd = Program::start(
        &StoreAt::Redis(redis.port(), "jumps".into()),
        &[service("message.call", &receiver)],
    )
    .await;
    let (mut last_id, mut ahead) = (0, 0);
    for jump in [HOUR, -HOUR, DAY, -DAY] {
        // The lane sleeps towards this task by the clock before the jump.
        let far = delayd.add(task(&format!("{}s", jump.abs() + 3))).await.id();
        assert!(far > last_id, "ids must grow when the clock jumps");
        ahead += jump;
        clock.set(ahead);
        if jump > 0 {
            let late = lateness_ms(&call_of(&receiver, far).await, ahead);
            assert!(late < SOON_MS, "after a jump of {jump} s, {late} ms late");
        }
        last_id = delayd.add(task("1s")).await.id();
        assert!(last_id > far, "ids must grow when the clock jumps");
        let late = lateness_ms(&call_of(&receiver, last_id).await, ahead);
        assert!(late < SOON_MS, "after a jump of {jump} s, {late} ms late");
        if jump < 0 {
            assert_eq!(delayd.task("t", far).await["state"], "scheduled");
        }
        assert_idle(delayd.pid(), &format!("after a jump of {jump} s")).await;
    }
    assert_each_came_once(&receiver);
}
