//! SIGSTOP of an instance for three leases, of Redis, and of a receiver.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::account::{Account, Cause};
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::machine::Paused;
use crate::outside::Outside;
use crate::probe::{Probe, Probed};
use crate::program::{StoreAt, folder};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::{Verdict, percentile};
use crate::{SERVICE, quick_settings, rounds, service};

const LEASE: Duration = Duration::from_secs(2);

/// Time for a load to start, and for the effects of a fault to show.
const WHILE: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_paused_on_an_embedded_store() {
    let folder = folder();
    pause_an_instance("embedded", fleet::embedded(folder.path()), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_instances_paused() {
    let server = Server::start();
    pause_an_instance("one of two on Redis", fleet::redis(&server), 2).await;
}

async fn pause_an_instance(on: &str, store: StoreAt, instances: usize) {
    let pauses = rounds(1, 2);
    let mut row = Row::new(format!("SIGSTOP of delayd for three leases ×{pauses}, {on}"));
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let account = Account::open();
    let fleet = Fleet::start(store, quick_settings(&receiver.endpoint(), LEASE), instances).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    for round in 0..pauses {
        tokio::time::sleep(WHILE).await;
        let lapse = account.fault(Cause::LeaseRanOut);
        let paused = Paused::now(fleet.member(round % instances).pid());
        tokio::time::sleep(3 * LEASE).await;
        drop(paused);
        drop(lapse);
    }
    tokio::time::sleep(WHILE).await;
    load.stop().await;
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.finish();
}

/// While Redis is silent, the API says so. When it answers again, everything goes on.
#[tokio::test(flavor = "multi_thread")]
async fn redis_paused() {
    let pauses = rounds(1, 2);
    let mut row = Row::new(format!("SIGSTOP of Redis for two leases ×{pauses}"));
    let server = Server::start();
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let account = Account::open();
    let fleet =
        Fleet::start(fleet::redis(&server), quick_settings(&receiver.endpoint(), LEASE), 1).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    let (mut first, mut later, mut back) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for _ in 0..pauses {
        tokio::time::sleep(WHILE).await;
        let away = account.fault(Cause::StoreAway);
        let paused = Paused::now(server.pid());
        let since = Instant::now();
        let question = json!({"topic": "drill.0", "task_id": 1}).to_string();
        let probe = Probe::start(
            fleet.member(0).url("/delay/task/get"),
            question,
            Duration::from_millis(50),
        );
        tokio::time::sleep(2 * LEASE).await;
        // Answers are separated by the time of their request: until the outage is known, and after.
        let (silent, known) = (probe.stop().await, since + Duration::from_millis(1_500));
        let slowest = |answers: &mut dyn Iterator<Item = &Probed>| {
            answers.map(|a| a.took).max().unwrap_or_default()
        };
        first = first.max(slowest(&mut silent.iter().filter(|answer| answer.asked < known)));
        later = later.max(slowest(&mut silent.iter().filter(|answer| answer.asked >= known)));
        let other = silent.iter().find(|answer| answer.status != 503);
        row.promise(
            other.is_none(),
            format!("an answer during the silence of Redis was {other:?}"),
        );
        drop(paused);
        let woken = Instant::now();
        fleet.member(0).wait_until_ready(200).await;
        back = back.max(woken.elapsed());
        drop(away);
    }
    tokio::time::sleep(WHILE).await;
    load.stop().await;
    row.promise(
        first.max(later) < Duration::from_secs(5),
        format!("an answer took {:?}", first.max(later)),
    );
    row.promise_in_time(
        first < Duration::from_millis(1_300),
        format!("the first answers took up to {first:?}, which is too long"),
    );
    row.promise_in_time(
        later < Duration::from_millis(300),
        format!("later answers took up to {later:?}, which is too long"),
    );
    row.promise_in_time(
        back < Duration::from_secs(2),
        format!("it was ready again after {back:?}"),
    );
    row.note(format!(
        "503 in {} ms, then {} ms; back in {} ms",
        first.as_millis(),
        later.as_millis(),
        back.as_millis()
    ));
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.finish();
}

/// The kernel of a stopped receiver goes on accepting connections and requests, which the receiver
/// does not read. Its tasks wait. Tasks of others do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_paused() {
    let mut row = Row::new("SIGSTOP of a receiver for three leases");
    let folder = folder();
    let (paused, healthy) = (Outside::start(), Receiver::start().await);
    let account = Account::open();
    let mut sets = quick_settings(&paused.endpoint, LEASE);
    sets.push(service("healthy", &healthy.endpoint()));
    let fleet = Fleet::start(fleet::embedded(folder.path()), sets, 1).await;
    let plan = Plan { adders: 4, ..Plan::default() };
    let loads = [SERVICE, "healthy"].map(|sn| {
        Load::start(&account, &fleet.endpoints(), Plan { service: sn.into(), ..plan.clone() })
    });
    tokio::time::sleep(WHILE).await;
    let slow = account.fault(Cause::Timeout);
    let stopped = Paused::now(paused.pid());
    let from = crate::receiver::now_ms();
    tokio::time::sleep(3 * LEASE).await;
    let until = crate::receiver::now_ms();
    drop(stopped);
    tokio::time::sleep(WHILE).await;
    for load in loads {
        load.stop().await;
    }
    // Only now the receiver reads the requests that were sent while it was stopped, including calls
    // that were given up.
    tokio::time::sleep(WHILE).await;
    drop(slow);
    let meanwhile =
        healthy.seen().into_iter().filter(|call| (from..until).contains(&call.arrived_ms));
    let mut lateness: Vec<i64> = meanwhile.map(|call| call.lateness_ms()).collect();
    lateness.sort_unstable();
    row.promise(
        !lateness.is_empty(),
        "the healthy receiver got nothing while the other was stopped",
    );
    row.note(format!(
        "the other receiver meanwhile: p50 {} / p99 {}",
        percentile(&lateness, 50),
        percentile(&lateness, 99)
    ));
    row.promise_in_time(percentile(&lateness, 99) < 500, "the other receiver was delayed");
    let seen = || [paused.seen(), healthy.seen()].concat();
    row.settle(Verdict::of(&account, fleet.member(0), seen).await);
    row.finish();
}
