//! Tests of the limits of a topic.

use futures_util::FutureExt;
use proptest::prelude::*;

use tokio::sync::Notify;

use super::*;
use crate::limits::Availability;
use crate::limits::slow_start::RECENT;

/// How long a call may take; topics do not care.
const TIMEOUT: Duration = Duration::from_secs(15);

fn at_a_time(concurrency: usize) -> Allowance {
    Allowance { concurrency, rate: None }
}

fn is_awake(wake: &Arc<Notify>) -> bool {
    wake.notified().now_or_never().is_some()
}

/// Whether the topic has no slot taken, and no waiters.
fn is_idle(limits: &TopicLimits) -> bool {
    limits.0.table().entries.values().all(|entry| entry.bulkhead.is_idle())
}

fn topic(number: usize) -> Topic {
    format!("t{number}").parse().unwrap()
}

/// A topic began with a slow start of 16 slots, as a destination does.
#[test]
fn all_slots_of_a_topic_are_there_from_the_first_call() {
    let limits = TopicLimits::default();
    let mut permits = limits.reserve(&topic(1), at_a_time(100), 1_000);
    assert_eq!(permits.len(), 100);
    assert!(limits.reserve(&topic(1), at_a_time(100), 1).is_empty());
    while let Some(mut permit) = permits.split_one() {
        permit.begin(TIMEOUT);
    }
    drop(permits);
    assert_eq!(
        limits.reserve(&topic(1), at_a_time(100), 1_000).len(),
        100,
        "outcomes do not matter"
    );
}

#[test]
fn a_topic_that_has_only_a_rate_has_any_number_of_slots() {
    let limits = TopicLimits::default();
    let allowance = Allowance { concurrency: usize::MAX, rate: "1000/s".parse().ok() };
    let permits = limits.reserve(&topic(1), allowance, 5_000);
    assert_eq!(permits.len(), 100, "a tenth of a second's");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_began_spends_its_token_and_no_other() {
    let limits = TopicLimits::default();
    let allowance = Allowance { concurrency: 50, rate: "20/s".parse().ok() };
    let mut permits = limits.reserve(&topic(1), allowance, 10);
    assert_eq!(permits.len(), 2);
    let (mut used, unused) = (permits.split_one().unwrap(), permits.split_one().unwrap());
    used.begin(TIMEOUT);
    drop((used, unused, permits));
    assert_eq!(limits.reserve(&topic(1), allowance, 10).len(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(limits.reserve(&topic(1), allowance, 10).len(), 2);
}

#[test]
fn waiters_get_slots_in_turn_and_those_that_go_away_keep_none() {
    let limits = TopicLimits::default();
    let allowance = at_a_time(1);
    let permits = limits.reserve(&topic(1), allowance, 1);
    let wakes: Vec<Arc<Notify>> = (0..4).map(|_| Arc::default()).collect();
    let mut waiters: Vec<Waiter<Topic>> =
        wakes.iter().map(|wake| limits.enqueue(&topic(1), wake.clone())).collect();
    for waiter in &waiters {
        assert_eq!(waiter.check(allowance), Availability::Later(None));
    }
    let woken = || wakes.iter().map(is_awake).collect::<Vec<_>>();
    drop(permits);
    assert_eq!(woken(), [true, false, false, false]);
    assert!(limits.reserve(&topic(1), allowance, 1).is_empty(), "it is reserved for the first");
    drop(waiters.remove(0));
    assert_eq!(woken(), [false, true, false, false], "the first went away");
    let permits = waiters.remove(0).reserve(allowance, 1);
    assert_eq!((permits.len(), woken()), (1, vec![false; 4]));
    waiters.remove(0).suspend();
    drop(permits);
    assert_eq!(woken(), [false, false, false, true], "a waiter that left is not woken");
    drop(waiters);
    assert!(is_idle(&limits));
}

#[tokio::test(start_paused = true)]
async fn one_waiter_sets_the_timer_for_the_next_token() {
    let limits = TopicLimits::default();
    let allowance = Allowance { concurrency: 50, rate: "10/s".parse().ok() };
    limits.reserve(&topic(1), allowance, 1).split_one().unwrap().begin(TIMEOUT);
    let wake = Arc::<Notify>::default();
    let [one, other] = [(); 2].map(|()| limits.enqueue(&topic(1), Arc::clone(&wake)));
    assert_eq!(one.check(allowance), Availability::Later(Some(Duration::from_millis(100))));
    assert_eq!(other.check(allowance), Availability::Later(None));
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(one.check(allowance), Availability::Now);
}

#[test]
fn another_limit_counts_from_the_next_look() {
    let limits = TopicLimits::default();
    let mut permits = limits.reserve(&topic(1), at_a_time(8), 8);
    assert!(limits.reserve(&topic(1), at_a_time(4), 1).is_empty());
    drop((permits.split_one(), permits.split_one()));
    assert!(limits.reserve(&topic(1), at_a_time(4), 1).is_empty(), "six are in flight");
    assert_eq!(limits.reserve(&topic(1), at_a_time(9), 9).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn idle_bulkheads_are_forgotten_and_used_ones_are_not() {
    let limits = TopicLimits::default();
    let slow = Allowance { concurrency: 9, rate: "1/h".parse().ok() };
    limits.reserve(&topic(1), slow, 1).split_one().unwrap().begin(TIMEOUT);
    let permits = limits.reserve(&topic(2), at_a_time(1), 1);
    drop(limits.reserve(&topic(3), at_a_time(1), 1));
    tokio::time::advance(RECENT).await;
    limits.forget_idle();
    assert!(!limits.0.table().entries.contains_key(&topic(3)));
    assert!(limits.reserve(&topic(1), slow, 1).is_empty(), "it would come back with a full bucket");
    assert!(limits.reserve(&topic(2), at_a_time(1), 1).is_empty());
    drop(permits);
    tokio::time::advance(Duration::from_secs(3_601)).await;
    limits.forget_idle();
    assert!(limits.0.table().entries.is_empty());
}

proptest! {
    /// Steps: take permits, give some back, wait, or stop waiting. Each woken waiter checks at
    /// once, and then waits on, takes one, or leaves.
    #[test]
    fn no_topic_has_more_than_its_slots_and_nobody_sleeps_beside_a_free_one(
        concurrency in 1_usize..40,
        steps in prop::collection::vec((0_u8..4, 0_usize..30), 0..200),
    ) {
        let limits = TopicLimits::default();
        let allowance = at_a_time(concurrency);
        let mut held: Vec<Permits<Topic>> = Vec::new();
        let mut asleep: Vec<(Arc<Notify>, Waiter<Topic>)> = Vec::new();
        for (step, amount) in steps {
            match step {
                0 => held.push(limits.reserve(&topic(1), allowance, amount)),
                1 if !held.is_empty() => drop(held.swap_remove(amount % held.len())),
                2 => {
                    let wake = Arc::<Notify>::default();
                    let waiter = limits.enqueue(&topic(1), wake.clone());
                    match waiter.check(allowance) {
                        Availability::Now => held.push(waiter.reserve(allowance, 1)),
                        Availability::Later(_) => asleep.push((wake, waiter)),
                    }
                }
                _ if !asleep.is_empty() => drop(asleep.swap_remove(amount % asleep.len())),
                _ => {}
            }
            while let Some(woken) = asleep.iter().position(|(wake, _)| is_awake(wake)) {
                let (wake, waiter) = asleep.swap_remove(woken);
                match waiter.check(allowance) {
                    Availability::Later(_) => asleep.push((wake, waiter)),
                    Availability::Now if amount % 2 == 0 => {
                        held.push(waiter.reserve(allowance, 1));
                        prop_assert_eq!(held.last().map(Permits::len), Some(1));
                    }
                    // It does not need the slot.
                    Availability::Now => {}
                }
            }
            let taken: usize = held.iter().map(Permits::len).sum();
            prop_assert!(taken <= concurrency);
            prop_assert_eq!(limits.in_flight(), taken);
            prop_assert!(
                asleep.is_empty() || taken == concurrency,
                "a waiter sleeps beside a free slot"
            );
        }
        drop((held, asleep));
        prop_assert!(is_idle(&limits));
    }
}
