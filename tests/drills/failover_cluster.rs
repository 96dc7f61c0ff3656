//! A cluster in use: one of its primaries dies, and a slot moves.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::block_in_place;

use crate::account::{Account, Cause};
use crate::failover::{RESUME_MS, no_caller_saw_readonly, resumed};
use crate::fleet::Fleet;
use crate::load::{Load, Plan};
use crate::program::StoreAt;
use crate::receiver::{Answer, Receiver, now_ms};
use crate::redis_many::{Cluster, until, until_followed};
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{SERVICE, quick_settings, rounds, service};

const LEASE: Duration = Duration::from_secs(2);
/// Time for a load to start.
const WHILE: Duration = Duration::from_millis(700);

/// The registry and the id counter are on the first primary, which these drills leave alone.
fn on(cluster: &Cluster) -> StoreAt {
    StoreAt::Set(vec![
        "store.kind=redis".into(),
        "store.redis.topology=cluster".into(),
        format!("store.redis.urls={:?}", cluster.urls()),
        format!("store.redis.key_prefix={}", cluster.prefix_on_first()),
    ])
}

async fn receiver() -> Receiver {
    Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await
}

/// The load of one topic, with its own account and receiver.
struct Part {
    account: Arc<Account>,
    receiver: Receiver,
    load: Load,
}

impl Part {
    fn start(fleet: &Fleet, topic: &str, service: &str, receiver: Receiver) -> Self {
        let account = Account::open();
        let plan = Plan {
            adders: 4,
            topics: vec![topic.to_owned()],
            service: service.to_owned(),
            ..Plan::default()
        };
        let load = Load::start(&account, &fleet.endpoints(), plan);
        Self { account, receiver, load }
    }

    async fn judge(self, fleet: &Fleet) -> (Arc<Account>, Verdict) {
        self.load.stop().await;
        let verdict =
            Verdict::after_failover(&self.account, fleet.member(0), || self.receiver.seen()).await;
        (self.account, verdict)
    }
}

/// The number of the node that has the slot, once that is another than `gone`.
fn successor(cluster: &Cluster, slot: u16, gone: usize) -> usize {
    let mut owner = gone;
    until("a replica takes over", || {
        let port = cluster.owner_of(slot);
        owner = cluster.nodes.iter().position(|node| Some(node.port()) == port).unwrap_or(gone);
        owner != gone
    });
    owner
}

/// Topics of other primaries are not affected. The topics of the dead one wait for the election,
/// and lose what replication had not copied.
#[tokio::test(flavor = "multi_thread")]
async fn one_primary_is_killed() {
    let kills = rounds(1, 3);
    let mut cluster = block_in_place(Cluster::start);
    let (well, hurt) = (cluster.topic_on(1), cluster.topic_on(2));
    let (well_receiver, hurt_receiver) = (receiver().await, receiver().await);
    let mut sets = quick_settings(&hurt_receiver.endpoint(), LEASE);
    sets.push(service("others", &well_receiver.endpoint()));
    let mut well_row =
        Row::new(format!("Cluster: kill -9 of a primary ×{kills}, topics of the others"));
    let mut hurt_row = Row::new(format!("Cluster: kill -9 of a primary ×{kills}, its own topic"));
    let fleet = Fleet::start(on(&cluster), sets, 1).await;
    fleet.member(0).wait_until_ready(200).await;
    let well = Part::start(&fleet, &well, "others", well_receiver);
    let slot = cluster.first_owner(&format!("{{{hurt}:0}}")).1;
    let hurt = Part::start(&fleet, &hurt, SERVICE, hurt_receiver);

    let (mut faulty, mut slowest, mut meanwhile, mut primary) = (Vec::new(), 0, 0, 2);
    for _ in 0..kills {
        tokio::time::sleep(WHILE).await;
        let fault = hurt.account.fault(Cause::Failover);
        let (killed_ms, before) = (now_ms(), well.account.accepted());
        block_in_place(|| cluster.nodes[primary].kill());
        let next = block_in_place(|| successor(&cluster, slot, primary));
        let elected_ms = now_ms();
        meanwhile += well.account.accepted() - before;
        slowest = slowest.max(resumed(&hurt.account, &fleet, elected_ms).await);
        faulty.push(killed_ms - 100..=elected_ms);
        block_in_place(|| {
            cluster.nodes[primary].restart();
            until_followed(&cluster.nodes[next], 1);
        });
        drop(fault);
        primary = next;
    }

    let (account, verdict) = well.judge(&fleet).await;
    well_row.promise(meanwhile > 0, "nothing was added to the others' topics meanwhile");
    well_row.promise(
        account.refusals() == 0,
        format!("adds to others' topics were refused: {:?}", account.sentences()),
    );
    well_row.note(format!("{meanwhile} adds while it was dead, {} refused", account.refusals()));
    well_row.settle(verdict);
    let (account, verdict) = hurt.judge(&fleet).await;
    let adds = account.adds();
    let when = |n: &u64| adds[n].taken.expect("only confirmed adds count as lost").1;
    let odd = verdict
        .lost_numbers
        .iter()
        .filter(|n| !faulty.iter().any(|span| span.contains(&when(n))))
        .count();
    hurt_row.promise(
        odd == 0,
        format!("{odd} lost that were confirmed long before a kill, or by a successor"),
    );
    hurt_row.promise(account.refusals() > 0, "the outage was not noticed");
    hurt_row
        .promise_in_time(slowest < RESUME_MS, format!("resumed {slowest} ms after the election"));
    hurt_row.note(format!("resumed {slowest} ms after the election"));
    hurt_row.note(format!("lost {} of {}", verdict.lost.len(), verdict.accepted));
    hurt_row.note(format!("{} adds refused", account.refusals()));
    no_caller_saw_readonly(&mut hurt_row, &account, std::slice::from_ref(&fleet));
    hurt_row.settle_counting_losses(verdict);
    well_row.finish();
    hurt_row.finish();
}

/// Moves a slot key by key to another primary and back, with a pause while half of it is on each
/// side.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves() {
    let moves = rounds(2, 10);
    let mut row = Row::new(format!("Cluster: a slot moved under load ×{moves}"));
    let cluster = block_in_place(Cluster::start);
    let topic = cluster.topic_on(1);
    let slot = cluster.first_owner(&format!("{{{topic}:0}}")).1.to_string();
    let receiver = receiver().await;
    let account = Account::open();
    let fleet = Fleet::start(on(&cluster), quick_settings(&receiver.endpoint(), LEASE), 2).await;
    let load =
        Load::start(&account, &fleet.endpoints(), Plan { topics: vec![topic], ..Plan::default() });
    let (mut from, mut to) = (1, 2);
    for _ in 0..moves {
        tokio::time::sleep(WHILE).await;
        block_in_place(|| {
            cluster.move_slot(&slot, from, to, || std::thread::sleep(Duration::from_millis(300)))
        });
        let keys =
            block_in_place(|| cluster.nodes[to].command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]));
        row.promise(keys.trim() != "0", "the slot did not move");
        (from, to) = (to, from);
    }
    tokio::time::sleep(WHILE).await;
    load.stop().await;
    row.note(format!("{} adds refused", account.refusals()));
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.finish();
}
