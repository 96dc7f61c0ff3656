//! Tests of the limits of destinations.

use std::sync::Arc;

use proptest::prelude::*;
use tokio::sync::Notify;

use super::*;
use crate::limits::entry::share;
use crate::limits::slow_start::RECENT;
use crate::limits::table::FEW;
use crate::limits::{self, Availability};
use crate::model::breaker;
use crate::model::culprit::Culprit;

type Permits = limits::Permits<Destination>;
type Permit = limits::Permit<Destination>;
type Waiter = limits::Waiter<Destination>;

#[path = "state_tests.rs"]
mod state_tests;

/// No limit but the number of calls at a time.
fn most(concurrency: usize) -> Allowance {
    Allowance { concurrency, rate: None }
}

fn params(concurrency: usize, concurrency_per_service: usize) -> LimitParams {
    let (breaker, retry_after_max) = (breaker::Params::default(), Duration::from_secs(60));
    LimitParams { concurrency, concurrency_per_service, breaker, retry_after_max }
}

fn limits(concurrency: usize, concurrency_per_service: usize) -> DestinationLimits {
    DestinationLimits::new(params(concurrency, concurrency_per_service))
}

fn name(name: &str) -> Destination {
    name.parse().unwrap()
}

/// Lets `times` calls to `destination` succeed, one after another.
fn succeed(limits: &DestinationLimits, destination: &Destination, times: usize) {
    for _ in 0..times {
        call(limits, destination).succeeded();
    }
}

/// A call that has begun.
fn call(limits: &DestinationLimits, destination: &Destination) -> Permit {
    let mut permit = limits.reserve(destination, most(0), 1).split_one().expect("there is a slot");
    permit.begin(Duration::from_secs(15));
    permit
}

/// How long until time alone gives `destination` a slot.
fn wait_for(limits: &DestinationLimits, destination: &Destination) -> Option<Duration> {
    let now = Instant::now();
    limits.0.table().entries.get_mut(destination)?.gate.retry_in(now)
}

/// Checks whether there is a slot. If there is one, `sleeper` is notified.
fn wait(limits: &DestinationLimits, destination: &Destination, sleeper: &Arc<Notify>) -> Waiter {
    let waiter = limits.enqueue(destination, Arc::clone(sleeper));
    if waiter.check(most(0)) == Availability::Now {
        sleeper.notify_one();
    }
    waiter
}

/// Whether `sleeper` has been notified since it was last asked.
fn is_awake(sleeper: &Arc<Notify>) -> bool {
    futures_util::FutureExt::now_or_never(sleeper.notified()).is_some()
}

#[test]
fn dropping_gives_back_what_was_and_what_was_not_used() {
    let (limits, a) = (limits(100, 10), name("a"));
    let mut permits = limits.reserve(&a, most(0), 4);
    let permit = permits.split_one().unwrap();
    assert_eq!((permits.len(), limits.in_flight(), limits.free(&a, most(0))), (3, 4, 6));
    drop(permits);
    assert_eq!(limits.in_flight(), 1);
    drop(permit);
    assert_eq!((limits.in_flight(), limits.free(&a, most(0))), (0, 10));
    let mut none = limits.reserve(&a, most(0), 0);
    assert!(none.is_empty() && none.split_one().is_none());
}

#[test]
fn a_services_own_limit_goes_before_the_default() {
    let (limits, a) = (limits(100, 10), name("a"));
    assert_eq!(limits.reserve(&a, most(0), 99).len(), 10);
    assert_eq!(limits.reserve(&a, most(3), 99).len(), 3);
    assert_eq!(limits.free(&name("unseen"), most(5)), 5);
}

#[tokio::test(start_paused = true)]
async fn a_destination_starts_slowly_and_falls_back_after_a_minute_without_success() {
    let (limits, a) = (limits(1_000, 100), name("a"));
    assert_eq!(limits.free(&a, most(0)), 16);
    succeed(&limits, &a, 16);
    assert_eq!(limits.free(&a, most(0)), 32);
    succeed(&limits, &a, 32 + 64);
    assert_eq!(limits.free(&a, most(0)), 100);
    let busy = limits.reserve(&a, most(0), 50);
    tokio::time::advance(RECENT).await;
    assert_eq!((busy.len(), limits.free(&a, most(0))), (50, 0));
    drop(busy);
    assert_eq!(limits.free(&a, most(0)), 16);
}

#[test]
fn four_black_holes_leave_room_for_a_fifth() {
    let limits = limits(1_000, 1_000);
    let holes = ["a", "b", "c", "d"].map(name);
    // Both have successes, so that their slow start does not protect the total.
    holes.iter().for_each(|hole| succeed(&limits, hole, 16 + 32 + 64 + 128 + 256 + 512));
    let mut taken = Vec::new();
    for _ in 0..1_000 {
        taken.extend(holes.iter().map(|hole| limits.reserve(hole, most(0), 1)));
    }
    let in_flight = limits.in_flight();
    assert!((790..=810).contains(&in_flight), "{in_flight}");
    assert_eq!(limits.reserve(&name("well"), most(0), 16).len(), 16);
}

#[test]
fn one_black_hole_takes_half_of_all_slots() {
    let (limits, hole) = (limits(100, 100), name("hole"));
    succeed(&limits, &hole, 16 + 32 + 64);
    let taken = limits.reserve(&hole, most(0), 100);
    assert_eq!(taken.len(), 51, "it takes the last one with 50 slots of its own and 50 free");
    assert_eq!(limits.free(&hole, most(0)), 0);
}

#[test]
fn a_sleeper_is_woken_once_when_its_destination_frees_a_slot() {
    let (limits, a, b) = (limits(100, 2), name("a"), name("b"));
    let sleeper = Arc::new(Notify::new());
    let mut permits = limits.reserve(&a, most(0), 2);
    let other = limits.reserve(&b, most(0), 1);
    let waiter = wait(&limits, &a, &sleeper);
    assert!(!is_awake(&sleeper));
    drop(other);
    assert!(!is_awake(&sleeper), "a slot of another destination does not help");
    drop(permits.split_one());
    assert!(is_awake(&sleeper));
    drop(permits);
    assert!(!is_awake(&sleeper), "it was called already");
    drop(waiter);
    assert_eq!(Arc::strong_count(&sleeper), 1);
}

/// The slot may be freed between a reserve that got nothing and the waiter's first check. Without a
/// check at registration, the waiter was not woken.
#[test]
fn a_sleeper_that_comes_late_is_woken_at_once() {
    let (limits, a) = (limits(100, 2), name("a"));
    let sleeper = Arc::new(Notify::new());
    let _waiter = wait(&limits, &a, &sleeper);
    assert!(is_awake(&sleeper));
}

#[test]
fn a_sleeper_that_the_total_kept_out_is_woken_by_anyones_slot() {
    let (limits, a, b) = (limits(3, 3), name("a"), name("b"));
    let sleeper = Arc::new(Notify::new());
    let mut permits = limits.reserve(&a, most(0), 3);
    assert_eq!(permits.len(), 2);
    let last = limits.reserve(&b, most(0), 1);
    assert_eq!((limits.in_flight(), limits.free(&name("c"), most(0))), (3, 0));
    let _waiter = wait(&limits, &name("c"), &sleeper);
    assert!(!is_awake(&sleeper));
    drop(permits.split_one());
    assert!(is_awake(&sleeper));
    drop((permits, last));
    assert!(!is_awake(&sleeper));
    assert!(limits.0.table().crowded_out.is_empty());
}

#[test]
fn a_sleeper_is_not_woken_while_its_share_of_the_total_is_used_up() {
    let (limits, a, b) = (limits(10, 10), name("a"), name("b"));
    let sleeper = Arc::new(Notify::new());
    let taken = limits.reserve(&a, most(0), 10);
    let mut others = limits.reserve(&b, most(0), 2);
    assert_eq!((taken.len(), others.len(), limits.free(&a, most(0))), (6, 2, 0));
    let _waiter = wait(&limits, &a, &sleeper);
    drop(others.split_one());
    drop(others);
    assert!(!is_awake(&sleeper), "4 are free, and 6 its own");
    drop(taken);
    assert!(is_awake(&sleeper));
}

/// Each freed slot woke a thousand lanes that waited for one service, and only one of them could
/// take it.
#[test]
fn a_slot_wakes_one_of_those_who_wait_for_it_in_turn() {
    let (limits, a) = (limits(100, 2), name("a"));
    let mut permits = limits.reserve(&a, most(0), 2);
    let come = |_| {
        let sleeper = Arc::new(Notify::new());
        let waiter = wait(&limits, &a, &sleeper);
        (sleeper, waiter)
    };
    let mut queue: Vec<(Arc<Notify>, Waiter)> = (0..100).map(come).collect();
    let woken = |queue: &[(Arc<Notify>, Waiter)]| -> Vec<usize> {
        (0..queue.len()).filter(|number| is_awake(&queue[*number].0)).collect()
    };
    drop(permits.split_one());
    assert_eq!(woken(&queue), [0]);
    drop(permits.split_one());
    assert_eq!(woken(&queue), [0; 0], "slots freed before it runs are reserved for it");
    assert!(limits.reserve(&a, most(0), 2).is_empty(), "a newcomer takes nothing");

    // The first one does not need them.
    drop(queue.remove(0));
    assert_eq!(woken(&queue), [0], "the next one behind");
    let taken = queue[0].1.reserve(most(0), 1);
    assert_eq!(taken.len(), 1);
    assert_eq!(woken(&queue), [1], "the next one behind, for what is left");
    assert_eq!(queue[1].1.check(most(0)), Availability::Now);
    queue[1].1.suspend();
    assert_eq!(woken(&queue), [2], "the next one behind");
    assert_eq!(queue[1].1.check(most(0)), Availability::Later(None));
    drop(taken);
    drop(queue.remove(0));
    let taken = queue[1].1.reserve(most(0), 1);
    assert_eq!((taken.len(), woken(&queue)), (1, vec![0]), "it has kept its position");
}

/// Each of a thousand lanes claimed one task at a time: 20,000 claims for 20,000 tasks.
#[test]
fn those_who_are_called_together_share_what_came_free() {
    let (limits, a) = (limits(1_000, 100), name("a"));
    succeed(&limits, &a, 16);
    let permits = limits.reserve(&a, most(0), 100);
    assert_eq!(permits.len(), 32);
    let sleepers: Vec<Arc<Notify>> = (0..3).map(|_| Arc::default()).collect();
    let queue: Vec<Waiter> = sleepers.iter().map(|sleeper| wait(&limits, &a, sleeper)).collect();
    drop(permits);
    assert_eq!(sleepers.iter().map(is_awake).collect::<Vec<_>>(), [true, true, false]);
    let taken: Vec<_> = queue.iter().map(|waiter| waiter.reserve(most(0), 100)).collect();
    assert_eq!(taken.iter().map(Permits::len).collect::<Vec<_>>(), [16, 16, 0]);
}

/// Each token woke all waiters.
#[tokio::test(start_paused = true)]
async fn one_of_those_who_wait_sets_the_timer_for_all() {
    let (limits, a) = (limits(100, 50), name("a"));
    let allowance = Allowance { concurrency: 0, rate: "10/s".parse().ok() };
    let mut used = limits.reserve(&a, allowance, 1).split_one().unwrap();
    used.begin(Duration::from_secs(1));
    let sleeper = Arc::new(Notify::new());
    let mut queue: Vec<Waiter> =
        (0..100).map(|_| limits.enqueue(&a, Arc::clone(&sleeper))).collect();
    let watching = |queue: &[Waiter]| -> Vec<usize> {
        (0..queue.len())
            .filter(|number| {
                matches!(queue[*number].check(allowance), Availability::Later(Some(_)))
            })
            .collect()
    };
    assert_eq!(watching(&queue), [0]);
    assert!(!is_awake(&sleeper));
    drop(queue.remove(0));
    assert!(is_awake(&sleeper), "the next one keeps the timer");
    assert_eq!(watching(&queue), [0]);
    drop(used);
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(queue[0].check(allowance), Availability::Now);
}

#[tokio::test(start_paused = true)]
async fn a_held_destination_gets_nothing_until_the_hold_ends() {
    let (limits, a) = (limits(100, 10), name("a"));
    limits.hold(&a, Duration::from_secs(30));
    limits.hold(&a, Duration::from_secs(10));
    assert_eq!(
        (wait_for(&limits, &a), limits.free(&a, most(0))),
        (Some(Duration::from_secs(30)), 0)
    );
    assert!(limits.reserve(&a, most(0), 1).is_empty());
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!((wait_for(&limits, &a), limits.free(&a, most(0))), (None, 10));
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_keeps_failing_is_left_alone_and_met_by_few_on_its_return() {
    let (limits, a) = (limits(1_000, 100), name("a"));
    succeed(&limits, &a, 16 + 32);
    assert_eq!(limits.free(&a, most(0)), 64);
    // These calls hang, and still do when the destination is back.
    let hanging: Vec<_> = (0..20).map(|_| call(&limits, &a)).collect();
    let sleeper = Arc::new(Notify::new());
    let mut rest = limits.reserve(&a, most(0), 44);
    let waiter = wait(&limits, &a, &sleeper);
    assert!(!is_awake(&sleeper));
    for _ in 0..5 {
        let mut permit = rest.split_one().unwrap();
        permit.begin(Duration::from_secs(15));
        permit.failed("503 Service Unavailable");
    }
    assert!(is_awake(&sleeper), "it must set its timer again");
    let wait = waiter.check(most(0));
    assert!(matches!(wait, Availability::Later(Some(_))), "{wait:?}");
    drop(rest);
    let standing = limits.standing(&a, most(0));
    assert_eq!(
        (standing.breaker, standing.in_flight, standing.window),
        (breaker::State::Open, 20, 16)
    );
    assert_eq!(standing.last_failure.unwrap().0, "503 Service Unavailable");
    assert_eq!(limits.free(&a, most(0)), 0);
    let wait = wait_for(&limits, &a).unwrap();
    assert!(wait > Duration::from_secs(4), "{wait:?}");
    tokio::time::advance(wait).await;
    let mut probes = limits.reserve(&a, most(0), 99);
    assert_eq!(probes.len(), 3, "half-open, with this many probes");
    assert!(is_awake(&sleeper), "its timer has another duration");
    assert!(matches!(waiter.check(most(0)), Availability::Later(_)));
    assert!(!is_awake(&sleeper));
    for _ in 0..3 {
        let mut permit = probes.split_one().unwrap();
        permit.begin(Duration::from_secs(15));
        permit.succeeded();
    }
    assert!(is_awake(&sleeper));
    drop(hanging);
    assert_eq!(limits.free(&a, most(0)), 16, "closed again, and at the start of its window");
}

#[tokio::test(start_paused = true)]
async fn probes_that_were_reserved_in_vain_are_there_for_others() {
    let (limits, a) = (limits(100, 10), name("a"));
    for _ in 0..5 {
        call(&limits, &a).failed("connection refused");
    }
    tokio::time::advance(wait_for(&limits, &a).unwrap()).await;
    let in_vain = limits.reserve(&a, most(0), 3);
    assert_eq!(limits.free(&a, most(0)), 0);
    drop(in_vain);
    assert_eq!(limits.free(&a, most(0)), 3);
}

#[tokio::test(start_paused = true)]
async fn a_rate_lets_through_what_it_says_and_unused_tokens_come_back() {
    let (limits, a) = (limits(100, 50), name("a"));
    let allowance = Allowance { concurrency: 0, rate: "20/s".parse().ok() };
    let mut permits = limits.reserve(&a, allowance, 10);
    assert_eq!(permits.len(), 2, "a tenth of a second's");
    let mut used = permits.split_one().unwrap();
    used.begin(Duration::from_secs(1));
    drop(permits);
    assert_eq!(limits.reserve(&a, allowance, 10).len(), 1);
    drop(used);
    let (mut calls, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_secs(10) {
        while let Some(mut permit) = limits.reserve(&a, allowance, 1).split_one() {
            permit.begin(Duration::from_secs(1));
            permit.succeeded();
            calls += 1;
        }
        tokio::time::advance(wait_for(&limits, &a).expect("only time can help")).await;
    }
    assert!((199..=203).contains(&calls), "{calls} calls in 10 s at 20/s");
}

/// It came back with a full bucket, and was called a minute after it was forgotten.
#[tokio::test(start_paused = true)]
async fn a_slow_rate_is_not_forgotten_before_its_bucket_is_full() {
    let (limits, a) = (limits(1_000, 50), name("a"));
    let allowance = Allowance { concurrency: 0, rate: "1/h".parse().ok() };
    let mut permit = limits.reserve(&a, allowance, 1).split_one().unwrap();
    permit.begin(Duration::from_secs(1));
    drop(permit);
    tokio::time::advance(2 * RECENT).await;
    (0..3 * FEW).for_each(|number| drop(limits.reserve(&name(&format!("d{number}")), most(0), 1)));
    assert!(limits.reserve(&a, allowance, 1).is_empty());
}

/// For example, this process has no free file descriptor. That says nothing about the service.
#[test]
fn calls_that_were_not_made_say_nothing() {
    let (limits, a) = (limits(1_000, 50), name("a"));
    for _ in 0..4 {
        call(&limits, &a).failed("connection refused");
    }
    drop(call(&limits, &a));
    assert_eq!(limits.standing(&a, most(0)).window, 16);
    call(&limits, &a).failed("connection refused");
    assert_eq!(
        limits.standing(&a, most(0)).breaker,
        breaker::State::Open,
        "failures before and after count together"
    );
}

proptest! {
    #[test]
    fn a_share_is_what_taking_one_by_one_would_give(free in 0_usize..200, own in 0_usize..200) {
        let mut taken = 0;
        while free > taken && free - taken >= own + taken {
            taken += 1;
        }
        prop_assert_eq!(share(free, own), taken);
    }

    /// Steps: take permits of one of six destinations, give some back, join or leave its queue, or
    /// make one call, which ends in one of several ways. Each woken waiter checks at once, and then
    /// waits on, takes one permit, or leaves.
    #[test]
    fn no_limit_is_ever_exceeded_and_nobody_sleeps_beside_a_free_slot(
        concurrency in 1_usize..80,
        per_service in 1_usize..40,
        steps in prop::collection::vec((0_u8..6, 0_usize..6, 0_usize..30), 0..200),
    ) {
        let limits = limits(concurrency, per_service);
        let names: Vec<_> = (0..6).map(|number| name(&format!("d{number}"))).collect();
        let mut held: Vec<(usize, Permits)> = Vec::new();
        let mut asleep: Vec<(usize, Arc<Notify>, Waiter)> = Vec::new();
        for (step, who, amount) in steps {
            match step {
                0 => {
                    let free = limits.free(&names[who], most(0));
                    let permits = limits.reserve(&names[who], most(0), amount);
                    prop_assert_eq!(permits.len(), free.min(amount));
                    held.push((who, permits));
                }
                1 if !held.is_empty() => drop(held.swap_remove(amount % held.len())),
                2 | 3 => {
                    let sleeper = Arc::new(Notify::new());
                    let waiter = wait(&limits, &names[who], &sleeper);
                    asleep.push((who, sleeper, waiter));
                }
                4 if !asleep.is_empty() => drop(asleep.swap_remove(amount % asleep.len())),
                _ => {
                    if let Some(mut permit) = limits.reserve(&names[who], most(0), 1).split_one() {
                        permit.begin(Duration::from_secs(1));
                        match amount % 3 {
                            0 => permit.failed("it failed"),
                            1 => permit.succeeded(),
                            _ => {}
                        }
                    }
                }
            }
            while let Some(woken) = asleep.iter().position(|(_, sleeper, _)| is_awake(sleeper)) {
                let (who, sleeper, waiter) = asleep.swap_remove(woken);
                match waiter.check(most(0)) {
                    Availability::Later(_) => asleep.push((who, sleeper, waiter)),
                    Availability::Now if amount % 2 == 0 => {
                        held.push((who, waiter.reserve(most(0), 1)));
                        prop_assert_eq!(held.last().map(|(_, permits)| permits.len()), Some(1));
                    }
                    // It does not need the slot.
                    Availability::Now => {}
                }
            }
            let total: usize = held.iter().map(|(_, permits)| permits.len()).sum();
            prop_assert_eq!(limits.in_flight(), total);
            prop_assert!(total <= concurrency);
            for (who, name) in names.iter().enumerate() {
                let own = held.iter().filter(|(of, _)| *of == who);
                let own: usize = own.map(|(_, permits)| permits.len()).sum();
                prop_assert!(own <= per_service);
                let sleeps = asleep.iter().any(|(of, ..)| *of == who);
                let free = limits.free(name, most(0));
                prop_assert!(!sleeps || free == 0, "{who} sleeps beside a free slot");
            }
        }
        drop((asleep, held));
        prop_assert_eq!(limits.in_flight(), 0);
        prop_assert!(limits.0.table().crowded_out.is_empty());
        prop_assert!(limits.0.table().entries.values().all(|entry| entry.bulkhead.is_idle()));
    }
}
