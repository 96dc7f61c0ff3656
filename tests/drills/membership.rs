//! Instances that divide the looking at lanes come and go under load: killed, stopped by SIGSTOP,
//! added, retired, and cut off from Redis.

use std::collections::HashMap;
use std::time::Duration;

use crate::account::{Account, Cause};
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::machine::Paused;
use crate::program::StoreAt;
use crate::receiver::{Answer, Receiver, Seen, now_ms};
use crate::redis_server::Server;
use crate::row::Row;
use crate::slow_wire::SlowWire;
use crate::verdict::Verdict;
use crate::{quick_settings, rounds};

const LEASE: Duration = Duration::from_secs(2);
/// The promise: how late a task may be after the death of an instance.
const AFTER_DEATH_MS: i64 = 3_500;
/// How late it may be on a machine that is too busy for promises about time.
const ON_A_BUSY_MACHINE_MS: i64 = 10_000;
/// How late a task may be while instances only come and leave in order: a poll, and some margin.
const IN_ORDER_MS: i64 = 1_500;
/// Longer than it takes the others to take over.
const TAKEN_OVER: Duration = Duration::from_secs(4);
/// Time without a fault: the effects of the last one end.
const CALM: Duration = Duration::from_millis(1_500);

/// The members that are killed, stopped, cut off, and added.
const KILLED: usize = 0;
const STOPPED: usize = 1;
const CUT_OFF: usize = 2;
const ADDED: usize = 3;

/// The times from the beginning of a fault to the end of its effects, by what happened.
#[derive(Default)]
struct Spans(Vec<(&'static str, i64, i64)>);

impl Spans {
    async fn after(&mut self, what: &'static str, began: i64, calm: Duration) {
        tokio::time::sleep(calm).await;
        self.0.push((what, began, now_ms()));
    }

    /// How late tasks came that fell due in these spans, by their first callbacks.
    fn latest(&self, what: &str, seen: &[Seen]) -> i64 {
        let mut first: HashMap<u64, &Seen> = HashMap::new();
        for call in seen {
            let earliest = first.entry(call.id).or_insert(call);
            if call.arrived_ms < earliest.arrived_ms {
                *earliest = call;
            }
        }
        let of = |call: &&&Seen| {
            self.0
                .iter()
                .any(|(name, from, to)| *name == what && (*from..*to).contains(&call.due_ms))
        };
        first.values().filter(of).map(|call| call.lateness_ms()).max().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_come_and_go() {
    let rounds = rounds(1, 6);
    let mut row = Row::new(format!(
        "four delayd on Redis: kill -9, SIGSTOP, partition, one added and retired, ×{rounds}"
    ));
    let server = Server::start();
    let wire = SlowWire::to(server.port(), Duration::ZERO).await;
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let account = Account::open();
    let store = fleet::redis(&server);
    let StoreAt::Redis(_, prefix) = &store else { unreachable!("the fleet is on Redis") };
    let behind_wire = StoreAt::Redis(wire.address.port(), prefix.clone());
    let sets = quick_settings(&receiver.endpoint(), LEASE);
    let mut fleet = Fleet::start(store, sets, 2).await;
    fleet.raise_on(CUT_OFF, &behind_wire).await;
    let topics = (0..12).map(|n| format!("drill.{n}")).collect();
    // So light that no instance asks the others for help: that would hide a death. Adds through an
    // instance that stands still wait for it, so enough tasks are added before.
    let (pause, delay_ms) = (Duration::from_millis(300), 0..6_000);
    let plan = Plan { adders: 16, pause, delay_ms, topics, ..Plan::default() };
    let load = Load::start(&account, &fleet.endpoints(), plan);
    let mut spans = Spans::default();
    tokio::time::sleep(CALM).await;
    for _ in 0..rounds {
        let began = now_ms();
        let crash = account.fault(Cause::Crash);
        fleet.kill(KILLED);
        spans.after("kill", began, TAKEN_OVER).await;
        let began = now_ms();
        fleet.raise(KILLED).await;
        drop(crash);
        spans.after("order", began, CALM).await;

        let began = now_ms();
        let lapse = account.fault(Cause::LeaseRanOut);
        let stopped = Paused::now(fleet.member(STOPPED).pid());
        tokio::time::sleep(TAKEN_OVER).await;
        drop(stopped);
        spans.after("stop", began, CALM).await;
        drop(lapse);

        let began = now_ms();
        fleet.raise(ADDED).await;
        tokio::time::sleep(CALM).await;
        let (code, log) = fleet.retire(ADDED).await;
        row.promise(code == Some(0), format!("a drain ended with {code:?}: {log}"));
        spans.after("order", began, CALM).await;

        let began = now_ms();
        let away = account.fault(Cause::StoreAway);
        let lapse = account.fault(Cause::LeaseRanOut);
        wire.cut();
        tokio::time::sleep(TAKEN_OVER).await;
        wire.mend();
        fleet.member(CUT_OFF).wait_until_ready(200).await;
        spans.after("partition", began, CALM).await;
        drop((away, lapse));
    }
    load.stop().await;
    row.settle(Verdict::of(&account, fleet.member(KILLED), || receiver.seen()).await);
    let seen = receiver.seen();
    for (what, most) in [
        ("kill", AFTER_DEATH_MS),
        ("stop", AFTER_DEATH_MS),
        ("partition", AFTER_DEATH_MS),
        ("order", IN_ORDER_MS),
    ] {
        let late = spans.latest(what, &seen);
        row.note(format!("{what}: at most {late} ms late"));
        row.promise(late < ON_A_BUSY_MACHINE_MS, format!("{what}: {late} ms late"));
        row.promise_in_time(late <= most, format!("{what}: {late} ms late, not {most}"));
    }
    row.finish();
}
