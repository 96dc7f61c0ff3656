//! Receivers that violate HTTP or misbehave otherwise. Their tasks arrive in the end, no other
//! tasks are delayed, and memory does not grow.

use std::collections::HashSet;
use std::time::Duration;

use crate::account::{Account, Cause};
use crate::bad_receiver::{BadReceiver, MANNERS, Manner};
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::machine::resident_kib;
use crate::program::{StoreAt, folder};
use crate::receiver::{Receiver, Seen};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::{Verdict, percentile};
use crate::{is_long, quick_settings, service};

/// How much more memory the misbehaviour may cost. A single endless body in memory would take
/// gigabytes.
const MOST_KIB: u64 = 64 << 10;

/// Lateness that a small, shared machine shows without any fault.
const NOISE_MS: i64 = 25;

/// How many spans the healthy receiver's calls are split into. The median of their p99 is compared:
/// a busy moment of the machine affects one span.
const SPANS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn beside_an_embedded_store() {
    let folder = folder();
    misbehave("embedded", fleet::embedded(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_redis() {
    let server = Server::start();
    misbehave("Redis", fleet::redis(&server)).await;
}

async fn misbehave(on: &str, store: StoreAt) {
    let mut row = Row::new(format!("receivers that misbehave in {} ways, {on}", MANNERS.len()));
    let (healthy, trap) = (Receiver::start().await, Receiver::start().await);
    let mut sets = quick_settings(&healthy.endpoint(), Duration::from_secs(3));
    let mut bad = Vec::new();
    for manner in MANNERS {
        let receiver = BadReceiver::start(manner, &trap.endpoint()).await;
        sets.push(service(&format!("bad.{manner:?}").to_lowercase(), &receiver.endpoint));
        bad.push(receiver);
    }
    let account = Account::open();
    let fleet = Fleet::start(store, sets, 1).await;
    let plan = Plan { adders: 4, ..Plan::default() };
    // First a while without the others: how late the healthy receiver's calls are in this run, on
    // this machine.
    let well = Load::start(&account, &fleet.endpoints(), plan.clone());
    tokio::time::sleep(Duration::from_secs(if is_long() { 6 } else { 2 })).await;
    let alone = healthy.seen();
    let before = resident_kib(fleet.member(0).pid());

    // A call that was given up may still be accepted by a receiver that did not read it in time.
    let slow = account.fault(Cause::Timeout);
    let mut loads: Vec<Load> = MANNERS
        .iter()
        .map(|manner| Plan {
            adders: 1,
            pause: Duration::from_millis(50),
            service: format!("bad.{manner:?}").to_lowercase(),
            ..plan.clone()
        })
        .map(|plan| Load::start(&account, &fleet.endpoints(), plan))
        .collect();
    loads.push(well);
    let mut most = before;
    for _ in 0..if is_long() { 100 } else { 30 } {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(resident_kib(fleet.member(0).pid()));
    }
    for load in loads {
        load.stop().await;
    }
    bad.iter().for_each(BadReceiver::mend);
    // Calls that were given up meanwhile are read only now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(slow);
    let beside = healthy.seen().split_off(alone.len());
    let seen = || bad.iter().map(BadReceiver::seen).chain([healthy.seen()]).flatten().collect();
    row.settle(Verdict::of(&account, fleet.member(0), seen).await);
    for (manner, receiver) in
        MANNERS.iter().zip(&bad).filter(|(manner, _)| **manner != Manner::Deaf)
    {
        let calls = receiver.seen();
        let tasks = calls.iter().map(|call| call.id).collect::<HashSet<_>>().len();
        row.promise(
            calls.len() == tasks,
            format!("{manner:?} took {} calls for {tasks} tasks", calls.len()),
        );
    }
    row.promise(trap.seen().is_empty(), "a redirect was followed");
    row.promise(most - before < MOST_KIB, format!("memory grew by {} KiB", most - before));
    row.note(format!("memory {before} → {most} KiB"));
    let (alone, beside) = (median_p99(&alone), median_p99(&beside));
    row.note(format!(
        "the healthy receiver's p99: alone {alone} ms, beside them {beside} ms \
         (medians of {SPANS} spans)"
    ));
    row.promise_in_time(beside < 2 * alone.max(NOISE_MS), "the healthy receiver was delayed");
    row.finish();
}

/// The median of the spans' p99.
fn median_p99(seen: &[Seen]) -> i64 {
    let p99 = |span: &[Seen]| {
        let mut lateness: Vec<i64> = span.iter().map(Seen::lateness_ms).collect();
        lateness.sort_unstable();
        percentile(&lateness, 99)
    };
    let mut found: Vec<i64> = seen.chunks(seen.len().div_ceil(SPANS).max(1)).map(p99).collect();
    found.sort_unstable();
    percentile(&found, 50)
}
