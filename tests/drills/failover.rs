//! A primary under sentinels dies, or is cut off: what is lost, and how soon it goes on.
//!
//! Replication is asynchronous, so that a failover may lose what was confirmed just before it. Luck would hide that: the drills hold
//! replication up first. Two services share each fault, one with `wait_replicas = 0` and one with 1. The first one's losses are counted, and
//! there must be some, or the drill has shown nothing; the second one's must be none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::block_in_place;

use crate::account::{Account, Cause, Ongoing};
use crate::fleet::Fleet;
use crate::load::{Load, Plan};
use crate::machine::Paused;
use crate::program::StoreAt;
use crate::receiver::{Answer, Receiver, now_ms};
use crate::redis_many::{MASTER, Watched, until};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{is_long, quick_settings, rounds};

const LEASE: Duration = Duration::from_secs(2);
/// Time for a load to get going.
const WHILE: Duration = Duration::from_millis(500);
/// What a client may take from the election to its first accepted write.
pub const RESUME_MS: i64 = 5_000;

/// A service on the servers that it shares with another.
struct Side {
    wait_replicas: usize,
    row: Row,
    account: Arc<Account>,
    receiver: Receiver,
    fleets: Vec<Fleet>,
    loads: Vec<Load>,
}

impl Side {
    /// Instances that find the primary by one of the `ways`, which are lists of sentinels' addresses; one for each.
    async fn start(drill: &str, wait_replicas: usize, ways: &[Vec<String>], plan: Plan) -> Self {
        let row = Row::new(format!("{drill}, wait_replicas = {wait_replicas}"));
        let receiver = Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
        let account = Account::open();
        let (mut fleets, mut loads) = (Vec::new(), Vec::new());
        for urls in ways {
            let store = StoreAt::Set(vec![
                "store.kind=redis".into(),
                "store.redis.topology=sentinel".into(),
                format!("store.redis.master_name={MASTER}"),
                format!("store.redis.urls={urls:?}"),
                format!("store.redis.key_prefix=waits{wait_replicas}"),
                format!("store.redis.wait_replicas={wait_replicas}"),
            ]);
            let fleet = Fleet::start(store, quick_settings(&receiver.endpoint(), LEASE), 1).await;
            fleet.member(0).wait_until_ready(200).await;
            loads.push(Load::start(&account, &fleet.doors(), plan.clone()));
            fleets.push(fleet);
        }
        Self { wait_replicas, row, account, receiver, fleets, loads }
    }

    fn fault(&self) -> Ongoing<'_> {
        self.account.fault(Cause::Failover)
    }

    /// How long after `since_ms` the last of the instances that the numbers name had an add accepted again.
    async fn resumed(&self, since_ms: i64, instances: &[usize]) -> i64 {
        let mut last = 0;
        for &instance in instances {
            last = last.max(resumed(&self.account, &self.fleets[instance], since_ms).await);
        }
        last
    }

    async fn is_ready(&self) {
        for fleet in &self.fleets {
            fleet.member(0).wait_until_ready(200).await;
        }
    }

    /// Ends the load.
    async fn stop(&mut self) {
        for load in self.loads.drain(..) {
            load.stop().await;
        }
    }

    /// After [`Side::stop`]: answers what was lost.
    async fn judge(&mut self) -> Vec<Lost> {
        let last = self.fleets.last().expect("an instance on the right side");
        let verdict = Verdict::after_failover(&self.account, last.member(0), || self.receiver.seen()).await;
        let adds = self.account.adds();
        let lost = verdict.lost_numbers.iter().map(|n| {
            let (by, at_ms) = adds[n].taken.expect("only what was confirmed is lost");
            let instance = self.fleets.iter().position(|fleet| fleet.member(0).address == by).unwrap();
            Lost { instance, at_ms }
        });
        let lost: Vec<Lost> = lost.collect();
        if self.wait_replicas == 0 {
            self.row.promise(!lost.is_empty(), "nothing was lost: the fault came to nothing");
        } else {
            self.row.promise(lost.is_empty(), format!("lost though a replica had it: {:?}", verdict.lost));
        }
        self.row.note(format!("lost {} of {}", lost.len(), verdict.accepted));
        self.row.note(format!("{} delivered ones forgotten", verdict.forgotten));
        self.row.note(format!("{} adds refused", self.account.refusals()));
        nobody_read_readonly(&mut self.row, &self.account, &self.fleets);
        self.row.settle_counting_losses(verdict);
        lost
    }

    /// Which instance confirmed adds in a span of time, and how many.
    fn accepted_by(&self, instance: usize, span_ms: std::ops::Range<i64>) -> usize {
        let door = self.fleets[instance].member(0).address;
        let adds = self.account.adds();
        adds.values().filter_map(|added| added.taken).filter(|(by, at)| *by == door && span_ms.contains(at)).count()
    }
}

/// An add that was confirmed and is lost.
#[derive(Debug)]
struct Lost {
    /// Which of the side's instances confirmed it.
    instance: usize,
    at_ms: i64,
}

/// How long after `since_ms` the fleet's first instance had an add accepted.
pub async fn resumed(account: &Account, fleet: &Fleet, since_ms: i64) -> i64 {
    let door = fleet.member(0).address;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let adds = account.adds();
        let taken = adds.values().filter_map(|added| added.taken);
        let first = taken.filter(|(by, at_ms)| *by == door && *at_ms >= since_ms).map(|(_, at_ms)| at_ms).min();
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

/// Holds replication up: what the primary writes from now on reaches no replica until these are dropped.
///
/// The connections are cut as well, or the replicas would find what was sent meanwhile in their sockets when they wake up.
fn hold_replication_up(watched: &mut Watched, primary: u16) -> Vec<Paused> {
    let paused = watched.others(primary).map(|replica| Paused::now(replica.pid())).collect();
    watched.on(primary).command(&["CLIENT", "KILL", "TYPE", "replica"]);
    paused
}

/// kill -9 of a primary whose replicas have been behind for a moment, two instances to each service.
#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_killed() {
    /// Longer than two batches of adds wait in vain for a replica, and shorter than the sentinels' patience.
    const BEHIND: Duration = Duration::from_millis(1_300);
    let kills = rounds(2, 5);
    let drill = format!("Sentinel: kill -9 of the primary ×{kills}, replicas {} ms behind", BEHIND.as_millis());
    let mut watched = block_in_place(|| Watched::with_options(&["--repl-diskless-sync-delay", "0"]));
    block_in_place(|| watched.be_patient());
    let ways = [watched.urls(), watched.urls()];
    let plan = Plan { adders: 3, ..Plan::default() };
    let mut sides = [Side::start(&drill, 0, &ways, plan.clone()).await, Side::start(&drill, 1, &ways, plan).await];
    let (mut faulty, mut slowest) = (Vec::new(), [0; 2]);
    let mut primary = watched.primary();
    for _ in 0..kills {
        tokio::time::sleep(WHILE).await;
        let faults = sides.each_ref().map(Side::fault);
        let held_up_ms = now_ms();
        let behind = block_in_place(|| hold_replication_up(&mut watched, primary));
        tokio::time::sleep(BEHIND).await;
        block_in_place(|| watched.on(primary).kill());
        drop(behind);
        let successor = block_in_place(|| watched.successor_of(primary));
        let elected_ms = now_ms();
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
        side.row
            .promise(elections == kills, format!("{elections} elections: a primary was deposed that nobody killed"));
        side.row.promise_in_time(slowest < RESUME_MS, format!("resumed {slowest} ms after the election"));
        side.row.note(format!("resumed {slowest} ms after the election"));
        let lost = side.judge().await;
        let odd: Vec<_> = lost.iter().filter(|lost| !faulty.iter().any(|span| span.contains(&lost.at_ms))).collect();
        side.row.promise(odd.is_empty(), format!("lost while replication was not held up: {odd:?}"));
        side.row.finish();
    }
}

/// Who is still let in while a server is cut off.
const INSIDER: [&str; 4] = ["--user", "tasks", "--pass", "hush"];

/// A partition, drawn by logins: servers and sentinels come without one, and are refused and thrown out. Instances have one, and so has a
/// sentinel that may hear of no other.
struct Partition {
    deaf: Server,
}

impl Partition {
    fn prepare(watched: &Watched, primary: u16) -> Self {
        for server in &watched.servers {
            server.command(&["ACL", "SETUSER", "tasks", "on", ">hush", "~*", "&*", "+@all"]);
            server.command(&["ACL", "SETUSER", "deaf", "on", ">hush", "~*", "resetchannels", "+@all"]);
        }
        let deaf = Server::sentinel_with(&format!(
            "sentinel monitor {MASTER} 127.0.0.1 {primary} 5\nsentinel auth-user {MASTER} deaf\nsentinel auth-pass {MASTER} hush\n"
        ));
        Self { deaf }
    }

    fn url(server: &Server) -> String {
        server.url().replace("redis://", "redis://tasks:hush@")
    }

    fn begin(&self, primary: &Server) {
        primary.command(&[&INSIDER[..], &["ACL", "SETUSER", "default", "off"]].concat());
        primary.command(&[&INSIDER[..], &["CLIENT", "KILL", "USER", "default"]].concat());
    }

    fn end(&self, watched: &Watched) {
        for server in &watched.servers {
            server.command(&[&INSIDER[..], &["ACL", "SETUSER", "default", "on"]].concat());
            server.command(&["ACL", "SETUSER", "deaf", "allchannels"]);
            server.command(&["CLIENT", "KILL", "USER", "deaf"]);
        }
    }
}

/// Split brain: the primary is cut off together with one instance and one sentinel, and goes on taking that instance's writes after the
/// others have elected another.
#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_cut_off() {
    const WRONG_SIDE: usize = 0;
    const RIGHT_SIDE: usize = 1;
    /// An answer that was on its way when the partition began.
    const ON_THE_WAY_MS: i64 = 500;
    let split = Duration::from_secs(if is_long() { 10 } else { 1 });
    let drill =
        format!("Sentinel: the primary cut off, one of two delayd with it, {} s past the election", split.as_secs());
    let mut watched = block_in_place(|| Watched::with_options(&["--repl-diskless-sync-delay", "0"]));
    block_in_place(|| watched.be_patient());
    let primary = watched.primary();
    let partition = block_in_place(|| Partition::prepare(&watched, primary));
    let ways = [vec![Partition::url(&partition.deaf)], watched.sentinels.iter().map(Partition::url).collect()];
    let plan = Plan { adders: 2, delay_ms: 0..4_000, ..Plan::default() };
    let mut sides = [Side::start(&drill, 0, &ways, plan.clone()).await, Side::start(&drill, 1, &ways, plan).await];
    tokio::time::sleep(WHILE).await;
    let faults = sides.each_ref().map(Side::fault);
    let cut_ms = now_ms();
    block_in_place(|| partition.begin(watched.on(primary)));
    block_in_place(|| watched.successor_of(primary));
    let elected_ms = now_ms();
    tokio::time::sleep(split).await;
    let ended_ms = now_ms();
    block_in_place(|| partition.end(&watched));
    block_in_place(|| {
        let old = watched.on(primary);
        let users = || old.command(&["CLIENT", "LIST", "TYPE", "normal"]).matches("user=tasks").count();
        until("nobody uses the old primary", || users() == 0);
    });
    let left_ms = now_ms();
    for side in &sides {
        side.is_ready().await;
    }
    drop(faults);
    if is_long() {
        let old = watched.on(primary);
        let is_replica = || old.command(&["INFO", "replication"]).contains("role:slave");
        block_in_place(|| until("the old primary is a replica", is_replica));
        let waits = (now_ms() - ended_ms) / 1_000;
        sides.iter_mut().for_each(|side| side.row.note(format!("the old primary was demoted {waits} s after the end")));
    }
    // Only a primary with a replica can have confirmed these.
    let right = sides[1].resumed(elected_ms, &[RIGHT_SIDE]).await;
    let wrong = sides[1].resumed(ended_ms, &[WRONG_SIDE]).await;
    let meanwhile = sides.each_ref().map(|side| side.accepted_by(WRONG_SIDE, cut_ms + ON_THE_WAY_MS..ended_ms));
    let elections = block_in_place(|| watched.elections());
    for side in &mut sides {
        side.stop().await;
        side.row.promise(elections == 1, format!("{elections} elections: a primary was deposed that nobody cut off"));
    }
    let [mut without, mut with] = sides;

    without.row.note(format!("{} adds confirmed by the cut-off instance meanwhile", meanwhile[0]));
    let lost = without.judge().await;
    let last_by = |instance| lost.iter().filter(|lost| lost.instance == instance).map(|lost| lost.at_ms).max();
    // What was confirmed and called before the end is not lost, so that there may be none.
    let (wrong_ms, right_ms) =
        (last_by(WRONG_SIDE).map(|at| at - ended_ms), last_by(RIGHT_SIDE).map(|at| at - elected_ms));
    without.row.promise(lost.iter().all(|lost| lost.at_ms >= cut_ms), "something was lost before the partition");
    without.row.promise(
        lost.iter().all(|lost| lost.at_ms <= left_ms),
        "something was lost after everybody had left the old primary",
    );
    without.row.promise_in_time(
        wrong_ms.max(right_ms).is_none_or(|noticed| noticed < RESUME_MS),
        format!("the old primary was written to for too long: {right_ms:?} and {wrong_ms:?} ms"),
    );
    let last = |ms: Option<i64>, after: &str| ms.map_or("none".to_owned(), |ms| format!("{ms} ms after {after}"));
    without.row.note(format!("last lost add of the cut-off instance: {}", last(wrong_ms, "the end of the partition")));
    without.row.note(format!("of the other one: {}", last(right_ms, "the election")));
    without.row.finish();

    with.row.promise(meanwhile[1] == 0, format!("the cut-off instance confirmed {} adds", meanwhile[1]));
    with.row.promise_in_time(right.max(wrong) < RESUME_MS, format!("resumed after {right} and {wrong} ms"));
    with.row.note(format!("resumed {right} ms after the election, the cut-off instance {wrong} ms after the end"));
    with.judge().await;
    with.row.finish();
}
