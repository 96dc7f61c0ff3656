//! `claim`: scheduled → leased, and the outlook on the other tasks.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use delayd::model::task::{Destination, State, TaskId};
use delayd::store::{
    Asker, Claim, LockToken, MAX_CLAIM_BYTES, MAX_OUTLOOK, Moment, NewTask, Position, Settle, Store,
};
use futures_util::future::join_all;

use crate::bench::{
    Bench, Held, LEASE_MS, at, claim_of, delivered, ids, lane, ms, new_task, outlook, retry,
    topic_of,
};

pub(crate) async fn nothing_is_claimed_before_its_due_millisecond(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 1_000).await;
    for wait in [0, 500, 499] {
        bench.advance(wait);
        let grant = bench.claim(&[("message.call", 10)]).await;
        assert!(grant.tasks.is_empty(), "a task was handed out early, at {}", grant.now);
    }
    bench.advance(1);
    assert_eq!(ids(&bench.claim(&[("message.call", 10)]).await), [id]);
}

pub(crate) async fn a_claim_takes_only_named_destinations_and_at_most_their_slots(
    bench: Bench<impl Store>,
) {
    let mut added = Vec::new();
    for (i, destination) in
        ["a", "b", "c", "a", "b", "c", "a", "b", "c", "@pull"].into_iter().enumerate()
    {
        added.push(bench.add(destination, i as u64).await);
    }
    bench.advance(100);
    let grant = bench.claim(&[("c", 1), ("a", 2), ("nobody", 5)]).await;
    assert_eq!(ids(&grant), [added[2], added[0], added[3]]);
    assert_eq!(ids(&bench.claim(&[("a", 5)]).await), [added[6]]);
    assert_eq!(bench.counts().await.scheduled, 6);
}

pub(crate) async fn a_claim_takes_the_earliest_first(bench: Bench<impl Store>) {
    let late = bench.add("message.call", 300).await;
    let soon = bench.add("message.call", 100).await;
    let (first, second) =
        (bench.add("message.call", 200).await, bench.add("message.call", 200).await);
    bench.advance(1_000);
    assert_eq!(ids(&bench.claim(&[("message.call", 3)]).await), [soon, first, second]);
    assert_eq!(ids(&bench.claim(&[("message.call", 3)]).await), [late]);
}

pub(crate) async fn a_leased_task_shows_what_its_caller_needs(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 100).await;
    bench.advance(1_000);
    let grant = bench.claim(&[("message.call", 1)]).await;
    assert_eq!(grant.now, at(1_000));
    let task = &grant.tasks[0];
    assert_eq!((task.id, task.attempt, task.due), (id, 1, at(100)));
    assert_eq!(task.destination.as_str(), "message.call");
    let kept = bench.get(id).await;
    assert_eq!((kept.state, kept.attempts, kept.due), (State::Leased, 1, at(100)));
}

pub(crate) async fn each_claim_has_a_receipt_of_its_own(bench: Bench<impl Store>) {
    bench.store.add(vec![new_task("message.call", 0); 50]).await;
    let mut receipts = HashSet::new();
    for _ in 0..50 {
        receipts.insert(bench.hold().await.receipt);
    }
    assert_eq!(receipts.len(), 50);
}

pub(crate) async fn a_retried_task_keeps_its_first_due_moment_and_counts_its_attempts(
    bench: Bench<impl Store>,
) {
    bench.add("message.call", 100).await;
    bench.advance(100);
    for attempt in 1..=3 {
        let grant = bench.claim(&[("message.call", 1)]).await;
        assert_eq!((grant.tasks[0].attempt, grant.tasks[0].due), (attempt, at(100)));
        let held = Held { id: grant.tasks[0].id, receipt: grant.receipt };
        bench.settle(&held, retry(5_000)).await;
        assert_eq!(bench.get(held.id).await.due, bench.now() + ms(5_000));
        bench.advance(5_000);
    }
}

/// Postponing the tasks of a blocked destination would write each of them again and again.
pub(crate) async fn a_blocked_destination_leaves_its_tasks_untouched(bench: Bench<impl Store>) {
    let blocked = bench.add("blocked", 0).await;
    let before = bench.get(blocked).await;
    for _ in 0..5 {
        bench.add("healthy", 0).await;
        bench.advance(10_000);
        let grant = bench.claim(&[("healthy", 1)]).await;
        assert_eq!(grant.outlook, outlook(&["blocked"], Some(bench.now() + ms(LEASE_MS))));
        let healthy = Held { id: grant.tasks[0].id, receipt: grant.receipt };
        bench.settle(&healthy, delivered()).await;
    }
    assert_eq!(bench.get(blocked).await, before);
    assert_eq!(bench.claim(&[("blocked", 1)]).await.tasks[0].attempt, 1);
}

pub(crate) async fn an_outlook_names_due_destinations_and_the_next_moment(
    bench: Bench<impl Store>,
) {
    assert_eq!(bench.sweep().await.outlook, outlook(&[], None));
    for (destination, after_ms) in
        [("later", 9_000), ("b", 200), ("a", 300), ("a", 100), ("@pull", 0)]
    {
        bench.add(destination, after_ms).await;
    }
    assert_eq!(
        bench.sweep().await.outlook,
        outlook(&[], Some(at(100))),
        "the outlook names a pulled task"
    );
    bench.advance(100);
    assert_eq!(bench.sweep().await.outlook, outlook(&["a"], Some(at(200))));
    bench.advance(900);
    assert_eq!(bench.sweep().await.outlook, outlook(&["a", "b"], Some(at(9_000))));
    let grant = bench.claim(&[("a", 1)]).await;
    assert_eq!(
        grant.outlook,
        outlook(&["b", "a"], Some(at(9_000))),
        "the next moment must be that of b"
    );
    let grant = bench.claim(&[("a", 1), ("b", 1)]).await;
    assert_eq!(grant.outlook, outlook(&[], Some(at(9_000))));
    bench.claim(&[("@pull", 1)]).await;
    bench.advance(8_000);
    assert_eq!(
        bench.claim(&[("later", 1)]).await.outlook,
        outlook(&[], Some(at(1_000 + LEASE_MS as i64)))
    );
}

pub(crate) async fn an_outlook_begins_after_a_position(bench: Bench<impl Store>) {
    for (after_ms, destination) in ["a", "b", "c"].into_iter().enumerate() {
        bench.add(destination, after_ms as u64).await;
    }
    bench.add("d", 60_000).await;
    bench.advance(1_000);
    let position = |ms: i64, last: Option<&str>| {
        Some(Position { moment: at(ms), destination: last.map(|name| name.parse().unwrap()) })
    };
    let check = async |after: Option<Position>, due: &[&str]| {
        let grant = bench.grant(Claim { after: after.clone(), ..claim_of(&[]) }).await;
        assert_eq!(grant.outlook, outlook(due, Some(at(60_000))), "after {after:?}");
    };
    check(None, &["a", "b", "c"]).await;
    check(position(-1, None), &["a", "b", "c"]).await;
    check(position(0, None), &["b", "c"]).await;
    check(position(1, Some("b")), &["c"]).await;
    check(position(1, Some("gone")), &["b", "c"]).await;
    check(position(2, Some("c")), &[]).await;
    check(position(1_000, None), &[]).await;
    check(position(60_000, Some("d")), &[]).await;
    check(position(90_000, None), &[]).await;
}

/// The worker would otherwise take it for one that is not due any more.
pub(crate) async fn an_outlook_names_the_wanted_destinations_that_are_still_due(
    bench: Bench<impl Store>,
) {
    for destination in ["a", "a", "b", "c", "d"] {
        bench.add(destination, 0).await;
    }
    bench.advance(1_000);
    let after = Some(Position { moment: at(500), destination: None });
    let claim = Claim { after, ..claim_of(&[("a", 1), ("b", 1), ("@pull", 1), ("none", 1)]) };
    let grant = bench.grant(claim.clone()).await;
    assert_eq!(grant.tasks.len(), 2);
    assert_eq!(grant.outlook, outlook(&["a"], Some(at(1_000 + LEASE_MS as i64))));
    let grant = bench.grant(Claim { after: None, ..claim }).await;
    assert_eq!(grant.tasks.len(), 1);
    assert_eq!(grant.outlook.due.len(), 2, "c and d, each once");
}

/// Pages by offset were shifted by what was claimed in between, so nothing could be.
pub(crate) async fn a_long_list_of_due_destinations_is_read_while_tasks_of_it_are_claimed(
    bench: Bench<impl Store>,
) {
    let names: BTreeSet<String> = (0..2 * MAX_OUTLOOK + 9).map(|n| format!("d{n:04}")).collect();
    let now = Moment::After(Duration::ZERO);
    let task = |name: &String| NewTask { moment: now, ..new_task(name, 0) };
    for added in bench.store.add(names.iter().map(task).collect()).await {
        added.unwrap();
    }
    bench.advance(1);
    let (mut after, mut seen, mut pages) = (None, BTreeSet::new(), 0);
    loop {
        let read = bench.grant(Claim { after: after.take(), ..claim_of(&[]) }).await.outlook;
        seen.extend(read.due.iter().map(|name| name.as_str().to_owned()));
        pages += 1;
        assert_eq!(read.end.is_some(), read.due.len() == MAX_OUTLOOK);
        let Some(end) = read.end else { break };
        // The first of the page, and the one in the middle. All are due at one moment.
        for name in [&read.due[0], &read.due[MAX_OUTLOOK / 2]] {
            assert_eq!(bench.claim(&[(name.as_str(), 1)]).await.tasks.len(), 1);
        }
        after = Some(end);
    }
    assert_eq!((seen, pages), (names, 3));
}

pub(crate) async fn a_claim_stops_at_its_byte_limit_except_for_a_single_larger_body(
    bench: Bench<impl Store>,
) {
    let big = |bytes: usize| NewTask { content: "x".repeat(bytes), ..new_task("message.call", 0) };
    for bytes in [MAX_CLAIM_BYTES / 3; 4] {
        bench.add_task(big(bytes - 1_000)).await;
    }
    bench.advance(1);
    let larger = bench.add_task(big(MAX_CLAIM_BYTES + 1)).await;
    let small = bench.add_task(big(10)).await;
    assert_eq!(bench.claim(&[("message.call", 10)]).await.tasks.len(), 3);
    let grant = bench.claim(&[("message.call", 10)]).await;
    assert_eq!(grant.tasks.len(), 1, "the larger body was handed out with another");
    assert_eq!(grant.outlook.due.len(), 1, "the larger task must still be due");
    assert_eq!(ids(&bench.claim(&[("message.call", 10)]).await), [larger]);
    assert_eq!(ids(&bench.claim(&[("message.call", 10)]).await), [small]);
}

pub(crate) async fn bytes_in_hand_count_for_a_claim(bench: Bench<impl Store>) {
    let big = |bytes: usize| NewTask { content: "x".repeat(bytes), ..new_task("@pull", 0) };
    let half = bench.add_task(big(MAX_CLAIM_BYTES / 2)).await;
    bench.advance(1);
    let small = bench.add_task(big(10)).await;
    let claim = |in_hand: usize| Claim { holder: None, in_hand, ..claim_of(&[("@pull", 10)]) };
    assert!(
        bench.grant(claim(1 + MAX_CLAIM_BYTES / 2)).await.tasks.is_empty(),
        "a claim took more bytes than it may"
    );
    assert_eq!(
        bench.get(half).await.attempts,
        0,
        "a task that was not handed out has spent an attempt"
    );
    // With room for the head of a record as well, where it counts.
    assert_eq!(ids(&bench.grant(claim(MAX_CLAIM_BYTES / 2 - 1_000)).await), [half, small]);
}

/// Lua can pass only lists of bounded length. A thousand due tasks must not be too many.
pub(crate) async fn a_thousand_due_tasks_go_in_one_claim(bench: Bench<impl Store>) {
    bench.store.add((0..1_200).map(|i| new_task("message.call", i)).collect()).await;
    bench.advance(2_000);
    let grant = bench.claim(&[("message.call", 1_100)]).await;
    assert_eq!(grant.tasks.len(), 1_100);
    assert!(ids(&grant).is_sorted());
    let settle = |id: &TaskId| Settle {
        lane: lane(),
        id: *id,
        receipt: grant.receipt.clone(),
        transition: delivered(),
    };
    assert!(
        bench
            .store
            .settle(Asker::Worker, ids(&grant).iter().map(settle).collect())
            .await
            .iter()
            .all(Result::is_ok)
    );
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.leased, counts.delivered), (100, 0, 1_100));
}

pub(crate) async fn a_claim_takes_no_task_of_another_lane(bench: Bench<impl Store>) {
    let other = NewTask { topic: topic_of("others", 1), ..new_task("message.call", 0) };
    bench.add_task(other).await;
    let grant = bench.claim(&[("message.call", 10)]).await;
    assert!(grant.tasks.is_empty());
    assert_eq!(grant.outlook, outlook(&[], None));
}

pub(crate) async fn claims_at_the_same_time_share_no_task(bench: Bench<impl Store>) {
    bench.store.add(vec![new_task("@pull", 0); 60]).await;
    let pulls = (0..10).map(|_| bench.grant(Claim { holder: None, ..claim_of(&[("@pull", 7)]) }));
    let taken: Vec<TaskId> = join_all(pulls).await.iter().flat_map(ids).collect();
    assert_eq!(taken.len(), 60);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 60);
}

pub(crate) async fn a_pull_ignores_the_lock(bench: Bench<impl Store>) {
    bench.store.add(vec![new_task("message.call", 0); 2]).await;
    bench.add("@pull", 0).await;
    let worker = Claim {
        holder: Some(LockToken("worker".into())),
        more: true,
        ..claim_of(&[("message.call", 1)])
    };
    bench.grant(worker).await;
    let pull = bench.grant(Claim { holder: None, ..claim_of(&[("@pull", 1)]) }).await;
    assert_eq!(pull.tasks.len(), 1);
    assert_eq!(pull.tasks[0].destination, Destination::pull());
}
