//! The clock of the store jumps an hour and a day, forwards and back. No task is early by that
//! clock, nothing stalls, and nothing spins.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::account::{Account, Cause};
use crate::fake_time::FakeTime;
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::machine::cpu_time;
use crate::program::folder;
use crate::receiver::Receiver;
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{SERVICE, is_long, quick_settings};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// How far the clock is ahead, one after the other.
const JUMPS: [i64; 8] = [HOUR, 0, -DAY, 0, -HOUR, 0, DAY, 0];

const LEASE: Duration = Duration::from_secs(2);

/// How long an idle process is watched.
const IDLE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_an_embedded_store_jumps() {
    let (folder, receiver) = (folder(), Receiver::start().await);
    let clock = FakeTime::right(folder.path());
    let of_program = clock.clone();
    let by = move |mut command: std::process::Command| {
        command.envs(of_program.variables());
        command
    };
    let sets = quick_settings(&receiver.endpoint(), LEASE);
    let fleet = Fleet::start_by(fleet::embedded(folder.path()), sets, 1, Box::new(by)).await;
    jump("embedded", &clock, &fleet, &receiver).await;
}

/// Redis' clock is the store's. The program's own clock is right.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_redis_jumps() {
    let (folder, receiver) = (folder(), Receiver::start().await);
    let clock = FakeTime::right(folder.path());
    let server = Server::in_surroundings(&[], &clock.variables());
    let sets = quick_settings(&receiver.endpoint(), LEASE);
    let fleet = Fleet::start(fleet::redis(&server), sets, 1).await;
    jump("Redis", &clock, &fleet, &receiver).await;
}

async fn jump(on: &str, clock: &FakeTime, fleet: &Fleet, receiver: &Receiver) {
    let mut row = Row::new(format!("clock jumps of an hour and a day, {on}"));
    let account = Account::open();
    let delayd = fleet.member(0);
    let (mut slowest, mut busiest) = (Duration::ZERO, Duration::ZERO);
    for &ahead in &JUMPS[..if is_long() { JUMPS.len() } else { 4 }] {
        let load = Load::start(&account, &fleet.endpoints(), Plan { adders: 4, ..Plan::default() });
        tokio::time::sleep(Duration::from_millis(500)).await;
        // By the store's clock every current lease may have expired.
        let lapse = account.fault(Cause::LeaseRanOut);
        account.clock_jumps(ahead * 1_000);
        clock.set(ahead);
        let since = Instant::now();
        let id = delayd
            .add(
                json!({"topic": "fresh", "delay": "100ms", "content": {"sn": SERVICE, "url": "/"}}),
            )
            .await
            .id();
        let fired = fired(receiver, id).await;
        row.promise(
            fired,
            format!("a task that was added after the jump to {ahead:+} s was not called"),
        );
        slowest = slowest.max(since.elapsed());
        drop(lapse);
        load.stop().await;
        let before = cpu_time(delayd.pid());
        tokio::time::sleep(IDLE).await;
        busiest = busiest.max(cpu_time(delayd.pid()) - before);
    }
    row.note("lateness counts the jumps");
    row.note(format!("a fresh task fired within {} ms of a jump", slowest.as_millis()));
    row.promise_in_time(slowest < Duration::from_millis(2_500), "a fresh task waited too long");
    row.note(format!("CPU in {} idle s: {} ms", IDLE.as_secs(), busiest.as_millis()));
    row.promise(busiest < IDLE / 2, format!("it spins: {} ms of CPU time", busiest.as_millis()));
    // A task that was added while the clock was ahead is due only now.
    account.clock_jumps(2 * DAY * 1_000);
    clock.set(2 * DAY);
    row.settle(
        Verdict::of(&account, delayd, || {
            receiver.seen().into_iter().filter(|c| c.body.contains("\"n\"")).collect()
        })
        .await,
    );
    row.finish();
}

async fn fired(receiver: &Receiver, id: u64) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if receiver.seen().iter().any(|call| call.id == id) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}
