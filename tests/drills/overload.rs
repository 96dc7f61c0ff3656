//! More adds than the service can take: three times as many, and they do not wait for answers.
//!
//! What it can take is measured in the same run, on the same slowed process, in a closed loop. It is slowed because load and service share
//! the machine: a generator that keeps three times ahead needs most of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fleet::{self, Fleet};
use crate::machine::{Slowed, resident_kib};
use crate::open_loop::{Answers, Callers, End};
use crate::program::{Program, StoreAt, folder};
use crate::receiver::Receiver;
use crate::redis_server::Server;
use crate::row::Row;
use crate::{SERVICE, is_long, quiet, service};

/// How much more memory an overload may take than full work: the requests that are being looked at, and their connections.
const MOST_KIB: u64 = 192 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn on_an_embedded_store() {
    let folder = folder();
    overload("embedded", fleet::embedded(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis() {
    let server = Server::start();
    overload("Redis", fleet::redis(&server)).await;
}

async fn overload(on: &str, store: StoreAt) {
    let mut row = Row::new(format!("adds at three times capacity, open loop, {on}"));
    let receiver = Receiver::start().await;
    let fleet = Fleet::start(store, vec![service(SERVICE, &receiver.endpoint()), quiet()], 1).await;
    let delayd = fleet.member(0);
    let callers = Callers::of(delayd.address);
    let span = Duration::from_secs(if is_long() { 8 } else { 2 });
    let numbers = Arc::new(AtomicU64::new(0));
    // Due when the overload is over, so that what is measured is adding alone.
    let due_ms = crate::receiver::now_ms() + 2 * span.as_millis() as i64 + 5_000;
    let task = move || {
        let n = numbers.fetch_add(1, Ordering::Relaxed);
        let content = json!({"sn": SERVICE, "url": "/", "n": n});
        json!({"topic": "drill.0", "timing_moment": due_ms as f64 / 1_000.0, "content": content}).to_string()
    };
    // The debug build of the suite is slow as it is.
    let run = Duration::from_millis(if is_long() { 5 } else { 12 });
    let slowed = Slowed::to(delayd.pid(), run, Duration::from_millis(20));
    let warm = Duration::from_millis(500);
    let began = Instant::now();
    let able = callers.closed_loop(64, span, task.clone()).await;
    let capacity = able.stored_a_second(began + warm, began + span);
    let before = resident_kib(delayd.pid());

    let began = Instant::now();
    let (answers, most) = tokio::join!(callers.open_loop(3.0 * capacity, span, task), most_memory(delayd, span),);
    let goodput = answers.stored_a_second(began + warm, began + span);
    drop(slowed);
    judge(&mut row, capacity, goodput, &answers);
    row.note(format!("memory {before} → {most} KiB"));
    row.promise(most.saturating_sub(before) < MOST_KIB, format!("memory grew by {} KiB", most - before));
    let confirmed = able.count(is_stored) + answers.count(is_stored);
    row.promise(everything_arrives(&receiver, confirmed).await, "something that was confirmed did not arrive");
    let early = receiver.seen().iter().filter(|call| call.lateness_ms() < 0).count();
    row.note(format!("{confirmed} confirmed, all of them delivered, {early} early"));
    row.promise(early == 0, format!("{early} came early"));
    row.finish();
}

fn judge(row: &mut Row, capacity: f64, goodput: f64, answers: &Answers) {
    let (stored, refused) = (answers.count(is_stored), answers.count(|end| end == End::Refused));
    let unsent = answers.count(|end| end == End::NoConnection);
    let hung = answers.count(|end| end == End::Hung);
    let odd = answers.count(|end| matches!(end, End::Odd(_) | End::Broken));
    let slowest = answers.slowest(|end| end != End::NoConnection);
    row.note(format!(
        "peak {capacity:.0}/s; at three times that {goodput:.0}/s stored ({:.0} %)",
        100.0 * goodput / capacity
    ));
    row.note(format!(
        "{stored} stored, {refused} refused, {unsent} found no connection; slowest answer {} ms",
        slowest.as_millis()
    ));
    row.promise(hung == 0, format!("{hung} adds got no answer"));
    row.promise(odd == 0, format!("{odd} adds were neither stored nor refused"));
    row.promise_in_time(slowest < Duration::from_secs(11), "an answer took longer than a request may");
    row.promise_in_time(goodput >= 0.8 * capacity, "goodput fell below 80 % of the peak");
}

fn is_stored(end: End) -> bool {
    end == End::Stored
}

/// Each number once, as many as were confirmed; more is possible where an answer was not.
async fn everything_arrives(receiver: &Receiver, confirmed: usize) -> bool {
    let deadline = Instant::now() + Duration::from_secs(120);
    while Instant::now() < deadline {
        let ids: std::collections::HashSet<u64> = receiver.seen().iter().map(|call| call.id).collect();
        if ids.len() >= confirmed {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    false
}

async fn most_memory(delayd: &Program, span: Duration) -> u64 {
    let (until, mut most) = (Instant::now() + span, 0);
    while Instant::now() < until {
        most = most.max(resident_kib(delayd.pid()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    most
}
