//! Ninety-nine services that never answer, with thousands of due tasks for each, beside one healthy
//! service.
//!
//! The lateness of the healthy service is compared with its own in the same run, in short rounds
//! with and without the others. The median of the rounds' p99 depends little on a moment in which
//! the machine was busy. Below [`NOISE_MS`] nothing is compared, since a scheduler's slice or an
//! fsync takes as long.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::account::Account;
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::machine::resident_kib;
use crate::program::{StoreAt, folder};
use crate::receiver::{Answer, Receiver, Seen};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::{Verdict, percentile};
use crate::{is_long, quick_settings, rounds, service};

const HOLES: usize = 99;

/// Lateness that a small, shared machine shows without any fault.
const NOISE_MS: i64 = 20;

/// How much memory the due tasks of blocked services may take, however many they are.
const MOST_KIB: u64 = 64 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn black_holes_on_an_embedded_store() {
    let folder = folder();
    beside_black_holes("embedded", fleet::embedded(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn black_holes_on_redis() {
    let server = Server::start();
    beside_black_holes("Redis", fleet::redis(&server)).await;
}

async fn beside_black_holes(on: &str, store: StoreAt) {
    let due = if is_long() { 3_000 } else { 60 };
    let measured = rounds(1, 3);
    let mut row = Row::new(format!(
        "{HOLES} black holes with {due} due each beside one healthy service, {on}"
    ));
    let (healthy, hole) = (Receiver::start().await, Receiver::answering(|_| Answer::Never).await);
    let mut sets = quick_settings(&healthy.endpoint(), Duration::from_secs(30));
    sets.extend((0..HOLES).map(|n| service(&format!("hole.{n}"), &hole.endpoint())));
    sets.push("callback.timeout=\"10s\"".into());
    let account = Account::open();
    let fleet = Fleet::start(store, sets, 1).await;
    let alone = median_p99(&account, &fleet, &healthy, measured).await;
    flood(&fleet, due / 3).await;
    // Until their first calls hang.
    hole.wait_for(HOLES).await;
    let some = resident_kib(fleet.member(0).pid());
    flood(&fleet, due - due / 3).await;
    let beside = median_p99(&account, &fleet, &healthy, measured).await;
    let all = resident_kib(fleet.member(0).pid());
    row.settle(Verdict::of(&account, fleet.member(0), || healthy.seen()).await);
    row.note(format!(
        "the healthy service's p99: alone {alone} ms, beside them {beside} ms \
         (medians of {measured} rounds)"
    ));
    row.promise_in_time(beside < 2 * alone.max(NOISE_MS), "the healthy service was delayed");
    row.note(format!("memory with a third due {some} KiB, with all {all} KiB"));
    row.promise(all.saturating_sub(some) < MOST_KIB, "memory grows with the number of due tasks");
    row.finish();
}

/// Adds tasks that are due at once for every service that never answers, in the topics that the
/// healthy service uses.
async fn flood(fleet: &Fleet, each: usize) {
    for n in 0..HOLES {
        let task = |i: usize| {
            let content = json!({"sn": format!("hole.{n}"), "url": "/"});
            json!({"topic": format!("drill.{}", i % 4), "delay": 0, "content": content})
        };
        let tasks: Vec<Value> = (0..each).map(task).collect();
        fleet.member(0).add_all(&tasks).await;
    }
}

/// The median of the p99 of some short rounds of load.
async fn median_p99(
    account: &std::sync::Arc<Account>,
    fleet: &Fleet,
    healthy: &Receiver,
    rounds: usize,
) -> i64 {
    let mut found = Vec::new();
    for _ in 0..rounds {
        let before = healthy.seen().len();
        let plan = Plan { delay_ms: 200..700, ..Plan::default() };
        let load = Load::start(account, &fleet.endpoints(), plan);
        tokio::time::sleep(Duration::from_secs(if is_long() { 3 } else { 1 })).await;
        load.stop().await;
        // The last of them fall due, and count however late they come.
        let confirmed: Vec<u64> =
            account.adds().values().filter_map(|added| Some(added.confirmed?.0)).collect();
        let all_came = crate::wait_until(|| {
            let came: HashSet<u64> = healthy.seen().iter().map(|call| call.id).collect();
            confirmed.iter().all(|id| came.contains(id))
        });
        assert!(all_came.await, "the healthy service waits for tasks");
        let mut lateness: Vec<i64> =
            healthy.seen()[before..].iter().map(Seen::lateness_ms).collect();
        lateness.sort_unstable();
        found.push(percentile(&lateness, 99));
    }
    found.sort_unstable();
    percentile(&found, 50)
}
