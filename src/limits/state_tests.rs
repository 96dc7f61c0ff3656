//! Tests of what a destination's entry keeps, and for how long.

use super::*;
use crate::limits::slow_start::RECENT;
use crate::limits::table::FEW;

#[tokio::test(start_paused = true)]
async fn a_hold_is_no_longer_than_the_longest_that_is_allowed() {
    let (limits, a) = (limits(100, 10), name("a"));
    limits.hold(&a, Duration::from_secs(3_600));
    assert_eq!(wait_for(&limits, &a), Some(Duration::from_secs(60)));
    limits.set_params(LimitParams { retry_after_max: Duration::from_secs(5), ..params(100, 10) });
    assert_eq!(
        wait_for(&limits, &a),
        Some(Duration::from_secs(5)),
        "a lower maximum shortens a wait"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_by_hand_lifts_what_a_retry_after_holds_once() {
    let (limits, a) = (limits(100, 10), name("a"));
    let sleeper = Arc::new(Notify::new());
    let seen = |at| {
        limits.set_holds(limits.ask_holds(), HashSet::new(), [(a.clone(), UnixMillis(at))].into())
    };
    limits.hold(&a, Duration::from_secs(30));
    let _waiter = wait(&limits, &a, &sleeper);
    assert!(!is_awake(&sleeper));
    seen(1);
    assert!(is_awake(&sleeper), "a waiter for the end of the hold is woken");
    assert_eq!(limits.free(&a, most(0)), 10);
    // Another answer sets a wait again. The same release does not end it, and the next one does.
    limits.hold(&a, Duration::from_secs(30));
    seen(1);
    assert_eq!(limits.free(&a, most(0)), 0);
    seen(2);
    assert_eq!(limits.free(&a, most(0)), 10);
    limits.hold(&a, Duration::from_secs(30));
    limits.lift(&a);
    assert_eq!(limits.free(&a, most(0)), 10);
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_is_called_until_there_is_one() {
    let (limits, a, b) = (limits(100, 10), name("a"), name("b"));
    limits.set_no_token(&a, None);
    assert!(limits.0.table().entries.is_empty(), "a token changes nothing for an unused one");
    limits.set_no_token(&a, Some("down".into()));
    assert_eq!((limits.free(&a, most(0)), limits.free(&b, most(0))), (0, 10));
    assert_eq!(limits.blocked_by(&a, most(0)), Some(Culprit::Receiver));
    assert_eq!(limits.standing(&a, most(0)).no_token.as_deref(), Some("down"));
    let sleeper = Arc::new(Notify::new());
    let _waiter = wait(&limits, &a, &sleeper);
    assert_eq!(wait_for(&limits, &a), None, "no time opens it");
    tokio::time::advance(Duration::from_secs(3_600)).await;
    limits.forget_idle();
    assert_eq!(limits.free(&a, most(0)), 0, "it is not forgotten");
    assert!(!is_awake(&sleeper));
    limits.set_no_token(&a, None);
    assert!(is_awake(&sleeper));
    assert_eq!((limits.free(&a, most(0)), limits.blocked_by(&a, most(0))), (10, None));
}

#[tokio::test(start_paused = true)]
async fn destinations_that_nobody_uses_are_forgotten() {
    let limits = limits(100, 10);
    let busy = limits.reserve(&name("busy"), most(0), 1);
    for round in 0..20 {
        for number in 0..FEW {
            drop(limits.reserve(&name(&format!("d{round}-{number}")), most(0), 1));
        }
        tokio::time::advance(RECENT).await;
    }
    let known = limits.0.table().entries.len();
    assert!(known <= 2 * FEW, "{known}");
    drop(busy);
    assert_eq!(limits.in_flight(), 0);
}

/// Entries are forgotten even if no new destination comes.
#[tokio::test(start_paused = true)]
async fn a_round_forgets_all_that_nobody_uses() {
    let limits = limits(100, 10);
    for number in 0..5_000 {
        let host = name(&format!("10.0.{}.{}:80", number / 250, number % 250));
        call(&limits, &host).failed("connection refused");
        limits.hold(&host, Duration::from_secs(30));
    }
    limits.forget_idle();
    assert_eq!(limits.0.table().entries.len(), 5_000, "they are held");
    tokio::time::advance(RECENT).await;
    limits.forget_idle();
    let table = limits.0.table();
    assert!(
        table.entries.is_empty() && table.entries.capacity() < 64,
        "{} {}",
        table.entries.len(),
        table.entries.capacity()
    );
}

#[test]
fn a_hold_by_hand_lasts_until_it_is_ended() {
    let (limits, a) = (limits(100, 10), name("a"));
    let sleeper = Arc::new(Notify::new());
    limits.set_holds(limits.ask_holds(), [a.clone()].into(), HashMap::new());
    assert_eq!((limits.free(&a, most(0)), wait_for(&limits, &a)), (0, None));
    assert!(limits.reserve(&a, most(0), 1).is_empty());
    let _waiter = wait(&limits, &a, &sleeper);
    assert!(!is_awake(&sleeper));
    limits.set_holds(limits.ask_holds(), [name("b")].into(), HashMap::new());
    assert!(is_awake(&sleeper));
    assert_eq!(limits.reserve(&a, most(0), 1).len(), 1);
}

#[test]
fn an_answer_that_was_asked_for_earlier_undoes_no_hold() {
    let (limits, a) = (limits(100, 10), name("a"));
    let (early, late) = (limits.ask_holds(), limits.ask_holds());
    limits.set_holds(late, [a.clone()].into(), HashMap::new());
    limits.set_holds(early, HashSet::new(), HashMap::new());
    assert_eq!(limits.free(&a, most(0)), 0);
    limits.set_holds(limits.ask_holds(), HashSet::new(), HashMap::new());
    assert_eq!(limits.free(&a, most(0)), 10);
}
