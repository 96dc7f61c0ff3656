//! A primary under sentinels dies: what is lost, and how soon it goes on.
//!
//! Replication is asynchronous, so that a failover may lose what was confirmed just before it. Luck
//! would hide that: the drill holds replication up first. Two services share each fault, one with
//! `wait_replicas = 0` and one with 1. The first one's losses are counted, and there must be some,
//! or the drill has shown nothing; the second one's must be none.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::block_in_place;

use crate::account::{Account, Cause, Ongoing};
use crate::fleet::{By, Fleet};
use crate::load::{Load, Plan};
use crate::machine::Paused;
use crate::program::StoreAt;
use crate::receiver::{Answer, Receiver, Seen, now_ms};
use crate::redis_many::{MASTER, Watched};
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{quick_settings, rounds};

const LEASE: Duration = Duration::from_secs(2);
/// Time for a load to get going.
pub const WHILE: Duration = Duration::from_millis(500);
/// What a client may take from the election to its first accepted write.
pub const RESUME_MS: i64 = 5_000;

/// How an instance is started.
pub struct Spot {
    /// Where it listens.
    pub host: IpAddr,
    pub by: By,
}

impl Spot {
    /// As any program on this machine.
    pub fn here() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.into(), by: Box::new(|serve| serve) }
    }
}

/// What the services that share the servers have in common.
pub struct Scene<'a> {
    pub drill: &'a str,
    /// The sentinels' addresses.
    pub urls: Vec<String>,
    pub plan: Plan,
    /// Where all instances find the receivers.
    pub receivers: IpAddr,
}

/// A service on the servers that it may share with another.
pub struct Side {
    wait_replicas: usize,
    pub row: Row,
    pub account: Arc<Account>,
    receiver: Receiver,
    fleets: Vec<Fleet>,
    loads: Vec<Load>,
}

impl Side {
    /// An instance in each spot.
    pub async fn start(scene: &Scene<'_>, wait_replicas: usize, spots: Vec<Spot>) -> Self {
        let row = Row::new(format!("{}, wait_replicas = {wait_replicas}", scene.drill));
        let behaviour = |call: &Seen| Answer::After(Duration::from_millis(call.id % 60));
        let receiver = Receiver::answering_at(scene.receivers, behaviour).await;
        let account = Account::open();
        let store = StoreAt::Set(vec![
            "store.kind=redis".into(),
            "store.redis.topology=sentinel".into(),
            format!("store.redis.master_name={MASTER}"),
            format!("store.redis.urls={:?}", scene.urls),
            format!("store.redis.key_prefix=waits{wait_replicas}"),
            format!("store.redis.wait_replicas={wait_replicas}"),
        ]);
        let (mut fleets, mut loads) = (Vec::new(), Vec::new());
        for Spot { host, by } in spots {
            let mut sets = quick_settings(&receiver.endpoint(), LEASE);
            sets.push(format!("http.bind=\"{host}:0\""));
            sets.push("http.auth.anonymous=true".into());
            let fleet = Fleet::start_by(store.clone(), sets, 1, by).await;
            fleet.member(0).wait_until_ready(200).await;
            loads.push(Load::start(&account, &fleet.doors(), scene.plan.clone()));
            fleets.push(fleet);
        }
        Self { wait_replicas, row, account, receiver, fleets, loads }
    }

    pub fn fault(&self) -> Ongoing<'_> {
        self.account.fault(Cause::Failover)
    }

    /// How long after `since_ms` the last of the instances that the numbers name had an add
    /// accepted again.
    pub async fn resumed(&self, since_ms: i64, instances: &[usize]) -> i64 {
        let mut last = 0;
        for &instance in instances {
            last = last.max(resumed(&self.account, &self.fleets[instance], since_ms).await);
        }
        last
    }

    pub async fn is_ready(&self) {
        for fleet in &self.fleets {
            fleet.member(0).wait_until_ready(200).await;
        }
    }

    /// Ends the load.
    pub async fn stop(&mut self) {
        for load in self.loads.drain(..) {
            load.stop().await;
        }
    }

    /// After [`Side::stop`]: answers what was lost.
    pub async fn judge(&mut self) -> Vec<Lost> {
        let last = self.fleets.last().expect("an instance on the right side");
        let verdict =
            Verdict::after_failover(&self.account, last.member(0), || self.receiver.seen()).await;
        let adds = self.account.adds();
        let lost = verdict.lost_numbers.iter().map(|n| {
            let (by, at_ms) = adds[n].taken.expect("only what was confirmed is lost");
            let instance =
                self.fleets.iter().position(|fleet| fleet.member(0).address == by).unwrap();
            Lost { instance, at_ms }
        });
        let lost: Vec<Lost> = lost.collect();
        if self.wait_replicas == 0 {
            self.row.promise(!lost.is_empty(), "nothing was lost: the fault came to nothing");
        } else {
            self.row.promise(
                lost.is_empty(),
                format!("lost though a replica had it: {:?}", verdict.lost),
            );
        }
        self.row.note(format!("lost {} of {}", lost.len(), verdict.accepted));
        self.row.note(format!("{} delivered ones forgotten", verdict.forgotten));
        self.row.note(format!("{} adds refused", self.account.refusals()));
        nobody_read_readonly(&mut self.row, &self.account, &self.fleets);
        self.row.settle_counting_losses(verdict);
        lost
    }

    /// Which instance confirmed adds in a span of time, and how many.
    pub fn accepted_by(&self, instance: usize, span_ms: std::ops::Range<i64>) -> usize {
        let door = self.fleets[instance].member(0).address;
        let adds = self.account.adds();
        adds.values()
            .filter_map(|added| added.taken)
            .filter(|(by, at)| *by == door && span_ms.contains(at))
            .count()
    }
}

/// An add that was confirmed and is lost.
#[derive(Debug)]
pub struct Lost {
    /// Which of the side's instances confirmed it.
    pub instance: usize,
    pub at_ms: i64,
}

/// How long after `since_ms` the fleet's first instance had an add accepted.
pub async fn resumed(account: &Account, fleet: &Fleet, since_ms: i64) -> i64 {
    let door = fleet.member(0).address;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let adds = account.adds();
        let taken = adds.values().filter_map(|added| added.taken);
        let first = taken
            .filter(|(by, at_ms)| *by == door && *at_ms >= since_ms)
            .map(|(_, at_ms)| at_ms)
            .min();
        if let Some(at_ms) = first {
            return at_ms - since_ms;
        }
        assert!(Instant::now() < deadline, "no add was accepted again:\n{}", fleet.member(0).log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A replica's word for "ask somebody else" is for clients of Redis, not for ours.
pub fn nobody_read_readonly(row: &mut Row, account: &Account, fleets: &[Fleet]) {
    let said = account.sentences().into_iter().find(|sentence| sentence.contains("READONLY"));
    row.promise(said.is_none(), format!("a caller was told {said:?}"));
    let logs = fleets.iter().map(|fleet| fleet.member(0).log()).collect::<String>();
    let logged = logs.lines().find(|line| line.contains("READONLY"));
    row.promise(logged.is_none(), format!("the log says {logged:?}"));
}

/// Holds replication up: what the primary writes from now on reaches no replica until these are
/// dropped.
///
/// The connections are cut as well, or the replicas would find what was sent meanwhile in their
/// sockets when they wake up.
fn hold_replication_up(watched: &mut Watched, primary: u16) -> Vec<Paused> {
    let paused = watched.others(primary).map(|replica| Paused::now(replica.pid())).collect();
    watched.on(primary).command(&["CLIENT", "KILL", "TYPE", "replica"]);
    paused
}

/// kill -9 of a primary whose replicas have been behind for a moment, two instances to each
/// service.
#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_killed() {
    /// Longer than three batches of adds wait in vain for a replica.
    const BEHIND: Duration = Duration::from_millis(1_600);
    let kills = rounds(2, 4);
    let drill = format!(
        "Sentinel: kill -9 of the primary ×{kills}, replicas {} ms behind",
        BEHIND.as_millis()
    );
    let mut watched =
        block_in_place(|| Watched::with_options(&["--repl-diskless-sync-delay", "0"]));
    block_in_place(|| watched.may_depose(false));
    // Most of what is confirmed in the last moments is not due yet when the primary dies: what was
    // called is not lost. Adders that rest come one by one: most of those who wait for a replica in
    // vain could still be answered in time, if somebody did.
    let plan = Plan {
        adders: 6,
        pause: Duration::from_millis(150),
        delay_ms: 0..4_000,
        ..Plan::default()
    };
    let scene =
        Scene { drill: &drill, urls: watched.urls(), plan, receivers: Ipv4Addr::LOCALHOST.into() };
    let two = || vec![Spot::here(), Spot::here()];
    let mut sides = [Side::start(&scene, 0, two()).await, Side::start(&scene, 1, two()).await];
    let (mut faulty, mut slowest) = (Vec::new(), [0; 2]);
    let mut primary = watched.primary();
    for _ in 0..kills {
        tokio::time::sleep(WHILE).await;
        let faults = sides.each_ref().map(Side::fault);
        let held_up_ms = now_ms();
        let behind = block_in_place(|| hold_replication_up(&mut watched, primary));
        tokio::time::sleep(BEHIND).await;
        block_in_place(|| watched.may_depose(true));
        block_in_place(|| watched.on(primary).kill());
        drop(behind);
        let successor = block_in_place(|| watched.successor_of(primary));
        let elected_ms = now_ms();
        block_in_place(|| watched.may_depose(false));
        faulty.push(held_up_ms..=elected_ms);
        for (side, slowest) in sides.iter().zip(&mut slowest) {
            *slowest = side.resumed(elected_ms, &[0, 1]).await.max(*slowest);
        }
        block_in_place(|| {
            let old = watched.on(primary);
            old.restart();
            // The sentinels would do the same some ten seconds later.
            old.command(&["REPLICAOF", "127.0.0.1", &successor.to_string()]);
            watched.all_follow(successor);
        });
        for side in &sides {
            side.is_ready().await;
        }
        drop(faults);
        primary = successor;
    }
    for side in &mut sides {
        side.stop().await;
    }
    let elections = block_in_place(|| watched.elections());
    for (mut side, slowest) in sides.into_iter().zip(slowest) {
        side.row.promise(
            elections == kills,
            format!("{elections} elections: a primary was deposed that nobody killed"),
        );
        side.row.promise_in_time(
            slowest < RESUME_MS,
            format!("resumed {slowest} ms after the election"),
        );
        side.row.note(format!("resumed {slowest} ms after the election"));
        let lost = side.judge().await;
        let odd: Vec<_> = lost
            .iter()
            .filter(|lost| !faulty.iter().any(|span| span.contains(&lost.at_ms)))
            .collect();
        side.row
            .promise(odd.is_empty(), format!("lost while replication was not held up: {odd:?}"));
        side.row.finish();
    }
}
