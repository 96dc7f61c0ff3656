//! Split brain: the network separates the primary from the others, together with one instance and
//! one Sentinel. The old primary goes on taking that instance's writes after the others have
//! elected another. When the network is whole again, it becomes a replica and loses these writes.
//!
//! As with a kill, the service with `wait_replicas = 0` shows and counts the losses. The one with 1
//! confirms nothing that a replica lacks.

use std::time::Duration;

use tokio::task::block_in_place;

use crate::failover::{RESUME_MS, Scene, Side, Spot, WHILE};
use crate::is_long;
use crate::island::Island;
use crate::load::Plan;
use crate::receiver::now_ms;
use crate::redis_many::{Watched, until};

const WRONG_SIDE: usize = 0;
const RIGHT_SIDE: usize = 1;

/// How much later than an event its time may be recorded, including answers in flight.
const ON_THE_WAY_MS: i64 = 500;

/// The times of the events, in milliseconds.
#[derive(Debug)]
struct Times {
    cut: i64,
    elected: i64,
    /// The network is whole again.
    joined: i64,
    /// No instance uses the old primary any more.
    left: i64,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_cut_off() {
    let split = Duration::from_secs(if is_long() { 10 } else { 1 });
    let drill = format!(
        "Sentinel: the primary cut off in the network, one of two delayd with it, \
         {} s past the election",
        split.as_secs()
    );
    let mut island = block_in_place(Island::raise);
    let options = ["--repl-diskless-sync-delay", "0"];
    let mut watched =
        block_in_place(|| Watched::apart(&island.inside(), &island.outside(), &options));
    block_in_place(|| watched.may_depose(false));
    let primary = watched.primary();
    let plan = Plan { adders: 2, delay_ms: 0..4_000, ..Plan::default() };
    let scene = Scene {
        drill: &drill,
        urls: watched.urls(),
        plan,
        receivers: island.outside_bypass().into(),
    };
    let spots =
        || vec![Spot { host: island.inside_bypass().into(), by: island.by() }, Spot::here()];
    let mut sides = [Side::start(&scene, 0, spots()).await, Side::start(&scene, 1, spots()).await];
    tokio::time::sleep(WHILE).await;

    let faults = sides.each_ref().map(Side::fault);
    block_in_place(|| watched.may_depose(true));
    let cut = now_ms();
    block_in_place(|| island.cut_off());
    block_in_place(|| watched.successor_of(primary));
    let elected = now_ms();
    block_in_place(|| watched.may_depose(false));
    tokio::time::sleep(split).await;
    let right = sides[1].resumed(elected, &[RIGHT_SIDE]).await;
    let joined = now_ms();
    block_in_place(|| island.rejoin());
    let neighbour = island.inside().host;
    block_in_place(|| {
        until("no instance uses the old primary", || {
            users(&mut watched, primary, &neighbour) == Some(0)
        })
    });
    let times = Times { cut, elected, joined, left: now_ms() };
    for side in &sides {
        side.is_ready().await;
    }
    // Only a primary with a replica can have confirmed these.
    let wrong = sides[1].resumed(times.left, &[WRONG_SIDE]).await + times.left - joined;
    drop(faults);
    if is_long() {
        let is_replica = || watched.on(primary).replication().contains("role:slave");
        block_in_place(|| until("the old primary is a replica", is_replica));
        let waits = (now_ms() - joined) / 1_000;
        sides.iter_mut().for_each(|side| {
            side.row.note(format!("the old primary was demoted {waits} s after the end"))
        });
    }
    let meanwhile = sides
        .each_ref()
        .map(|side| side.accepted_by(WRONG_SIDE, times.elected.max(cut + ON_THE_WAY_MS)..joined));
    let elections = block_in_place(|| watched.elections());
    for side in &mut sides {
        side.stop().await;
        side.row.promise(
            elections == 1,
            format!("{elections} elections: a primary was deposed that was not cut off"),
        );
    }
    let [without, mut with] = sides;
    judge_losses(without, &times, meanwhile[0]).await;

    with.row.promise(
        meanwhile[1] == 0,
        format!("the cut-off instance confirmed {} adds", meanwhile[1]),
    );
    with.row.promise_in_time(
        right.max(wrong) < RESUME_MS,
        format!("resumed after {right} and {wrong} ms"),
    );
    with.row.note(format!(
        "resumed {right} ms after the election, the cut-off instance {wrong} ms after the end"
    ));
    with.judge().await;
    with.row.finish();
}

/// Checks the losses of the service that waits for no replica. A lost add must have been written to
/// the old primary while that was cut off, or before the instance knew that it was deposed.
async fn judge_losses(mut side: Side, times: &Times, meanwhile: usize) {
    side.row.promise(
        meanwhile > 0,
        "no add went to the old primary after the election, so there was no split brain",
    );
    side.row.note(format!("{meanwhile} adds confirmed by the cut-off instance after the election"));
    let lost = side.judge().await;
    let last_by = |instance| {
        lost.iter().filter(|lost| lost.instance == instance).map(|lost| lost.at_ms).max()
    };
    // An add that was confirmed and called before the end is not lost, so there may be none.
    let (wrong, right) = (
        last_by(WRONG_SIDE).map(|at| at - times.joined),
        last_by(RIGHT_SIDE).map(|at| at - times.elected),
    );
    let early = lost.iter().filter(|lost| lost.at_ms < times.cut - ON_THE_WAY_MS).count();
    side.row
        .promise(early == 0, format!("{early} of the lost were confirmed before the partition"));
    let late = lost.iter().filter(|lost| lost.at_ms > times.left + ON_THE_WAY_MS).count();
    side.row.promise(
        late == 0,
        format!("{late} of the lost were confirmed after all instances had left the old primary"),
    );
    side.row.promise_in_time(
        wrong.max(right).is_none_or(|noticed| noticed < RESUME_MS),
        format!("the old primary was written to for too long: {right:?} and {wrong:?} ms"),
    );
    let last = |ms: Option<i64>, after: &str| {
        ms.map_or("none".to_owned(), |ms| format!("{ms} ms after {after}"))
    };
    side.row.note(format!(
        "last lost add of the cut-off instance: {}",
        last(wrong, "the end of the partition")
    ));
    side.row.note(format!("of the other one: {}", last(right, "the election")));
    side.row.finish();
}

/// How many connections the server has from the instances beside it. Connections from the other
/// side are stale: the server has not heard of their end yet.
fn users(watched: &mut Watched, server: u16, neighbour: &str) -> Option<usize> {
    let clients =
        watched.on(server).command_unless_cut_off(&["CLIENT", "LIST", "TYPE", "normal"])?;
    let from_there = format!(" addr={neighbour}:");
    Some(
        clients
            .lines()
            .filter(|line| line.contains(&from_there) && !line.contains("name=sentinel"))
            .count(),
    )
}
