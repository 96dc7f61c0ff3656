//! A primary under Sentinels dies: what is lost, and when the service goes on.
//!
//! Replication is asynchronous, so a failover may lose what was confirmed just before it. Usually
//! nothing is lost by luck, so the drill delays replication first. Two services share each fault,
//! one with `wait_replicas = 0` and one with 1. The losses of the first are counted, and there must
//! be some, or the drill has shown nothing. The second must lose nothing.

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
/// Time for a load to start.
pub const WHILE: Duration = Duration::from_millis(500);
/// How long a client may take from the election to its first accepted write.
pub const RESUME_MS: i64 = 5_000;

/// How an instance is started.
pub struct Spot {
    /// The address on which it listens.
    pub host: IpAddr,
    pub by: By,
}

impl Spot {
    /// Like any program on this machine.
    pub fn here() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.into(), by: Box::new(|serve| serve) }
    }
}

/// What the services on the same servers have in common.
pub struct Scene<'a> {
    pub drill: &'a str,
    /// The Sentinels' addresses.
    pub urls: Vec<String>,
    pub plan: Plan,
    /// The address at which all instances reach the receivers.
    pub receivers: IpAddr,
}

/// One service, on servers that it may share with another.
pub struct Side {
    wait_replicas: usize,
    pub row: Row,
    pub account: Arc<Account>,
    receiver: Receiver,
    fleets: Vec<Fleet>,
    loads: Vec<Load>,
}

impl Side {
    /// Starts an instance in each spot.
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
            loads.push(Load::start(&account, &fleet.endpoints(), scene.plan.clone()));
            fleets.push(fleet);
        }
        Self { wait_replicas, row, account, receiver, fleets, loads }
    }

    pub fn fault(&self) -> Ongoing<'_> {
        self.account.fault(Cause::Failover)
    }

    /// How long after `since_ms` the last of the given instances had an add accepted again.
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

    /// After [`Side::stop`]: returns the lost adds.
    pub async fn judge(&mut self) -> Vec<Lost> {
        let last = self.fleets.last().expect("the majority side has an instance");
        let verdict =
            Verdict::after_failover(&self.account, last.member(0), || self.receiver.seen()).await;
        let adds = self.account.adds();
        let lost = verdict.lost_numbers.iter().map(|n| {
            let (by, at_ms) = adds[n].taken.expect("only confirmed adds count as lost");
            let instance =
                self.fleets.iter().position(|fleet| fleet.member(0).address == by).unwrap();
            Lost { instance, at_ms }
        });
        let lost: Vec<Lost> = lost.collect();
        if self.wait_replicas == 0 {
            self.row.promise(!lost.is_empty(), "nothing was lost, so the fault had no effect");
        } else {
            self.row.promise(
                lost.is_empty(),
                format!("lost although a replica had it: {:?}", verdict.lost),
            );
        }
        self.row.note(format!("lost {} of {}", lost.len(), verdict.accepted));
        self.row.note(format!("{} delivered ones forgotten", verdict.forgotten));
        self.row.note(format!("{} adds refused", self.account.refusals()));
        no_caller_saw_readonly(&mut self.row, &self.account, &self.fleets);
        self.row.settle_counting_losses(verdict);
        lost
    }

    /// How many adds an instance confirmed in a span of time.
    pub fn accepted_by(&self, instance: usize, span_ms: std::ops::Range<i64>) -> usize {
        let endpoint = self.fleets[instance].member(0).address;
        let adds = self.account.adds();
        adds.values()
            .filter_map(|added| added.taken)
            .filter(|(by, at)| *by == endpoint && span_ms.contains(at))
            .count()
    }
}

/// An add that was confirmed and lost.
#[derive(Debug)]
pub struct Lost {
    /// Which of the side's instances confirmed it.
    pub instance: usize,
    pub at_ms: i64,
}

/// How long after `since_ms` the fleet's first instance had an add accepted.
pub async fn resumed(account: &Account, fleet: &Fleet, since_ms: i64) -> i64 {
    let endpoint = fleet.member(0).address;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let adds = account.adds();
        let taken = adds.values().filter_map(|added| added.taken);
        let first = taken
            .filter(|(by, at_ms)| *by == endpoint && *at_ms >= since_ms)
            .map(|(_, at_ms)| at_ms)
            .min();
        if let Some(at_ms) = first {
            return at_ms - since_ms;
        }
        assert!(Instant::now() < deadline, "no add was accepted again:\n{}", fleet.member(0).log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// READONLY, a replica's answer to clients of Redis, must not reach the callers of delayd.
pub fn no_caller_saw_readonly(row: &mut Row, account: &Account, fleets: &[Fleet]) {
    let said = account.sentences().into_iter().find(|sentence| sentence.contains("READONLY"));
    row.promise(said.is_none(), format!("a caller was told {said:?}"));
    let logs = fleets.iter().map(|fleet| fleet.member(0).log()).collect::<String>();
    let logged = logs.lines().find(|line| line.contains("READONLY"));
    row.promise(logged.is_none(), format!("the log says {logged:?}"));
}

/// Delays replication: what the primary writes from now on reaches no replica until the result is
/// dropped.
///
/// The connections are cut as well. Otherwise the replicas would find in their sockets what was
/// sent meanwhile.
pub fn hold_replication_up(watched: &mut Watched, primary: u16) -> Vec<Paused> {
    let paused = watched.others(primary).map(|replica| Paused::now(replica.pid())).collect();
    watched.on(primary).command(&["CLIENT", "KILL", "TYPE", "replica"]);
    paused
}

/// kill -9 of a primary whose replicas have been behind for a moment. Each service has two
/// instances.
#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_killed() {
    /// Longer than three batches of adds wait for a replica that does not answer.
    const BEHIND: Duration = Duration::from_millis(1_600);
    let kills = rounds(2, 4);
    let drill = format!(
        "Sentinel: kill -9 of the primary ×{kills}, replicas {} ms behind",
        BEHIND.as_millis()
    );
    let mut watched =
        block_in_place(|| Watched::with_options(&["--repl-diskless-sync-delay", "0"]));
    block_in_place(|| watched.may_depose(false));
    // Most adds that are confirmed in the last moments are not due when the primary dies: a task
    // that was called is not lost. The adders pause between adds, so their adds come one by one.
    // Most of those that wait for a replica could then still be answered in time, if a replica did.
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
            // The Sentinels would do the same some ten seconds later.
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
            format!("{elections} elections: a primary was deposed that was not killed"),
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
            .promise(odd.is_empty(), format!("lost while replication was not delayed: {odd:?}"));
        side.row.finish();
    }
}
