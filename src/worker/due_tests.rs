use futures_util::FutureExt;

use super::*;
use crate::model::task::TopicPolicy;
use crate::worker::testing::{Bench, lane, service};

/// The tasks behind those of a claim were charged to delayd until the next check found no slot,
/// and mostly it found one.
#[tokio::test]
async fn what_follows_the_last_permits_waits_for_receivers() {
    let bench = Bench::start(&[("s", 2)], |params| params.enabled = false);
    let shared = &bench.worker.shared;
    let s: Destination = "s".parse().unwrap();
    for is_due in [true, false] {
        let mut due = DueDestinations::new(lane().topic, Arc::default());
        let mut delays = Delays::default();
        if is_due {
            due.named(shared, s.clone(), &mut delays);
        }
        let mut take = |most| {
            let recent = std::slice::from_ref(&s);
            let (reserved, _) = due.reserve(shared, None, recent, most, &mut delays);
            (reserved, delays.of_destination(&s))
        };
        let (one, by) = take(1);
        assert_eq!((one.count(&s), by), (1, None));
        let (two, by) = take(64);
        assert_eq!((two.count(&s), by), (1, Some(Culprit::Receiver)));
        drop((one, two));
        assert_eq!(take(1).1, None);
    }
}

/// A lane that waited for its topic kept the timers of its destinations, and no other lane was
/// woken when they ended.
#[tokio::test]
async fn a_lane_that_waits_for_its_topic_leaves_its_timers_to_others() {
    let bench = Bench::start(&[("s", 1)], |params| params.enabled = false);
    bench.add(["s"]).await;
    bench.set_policy(TopicPolicy { concurrency: Some(1), ..TopicPolicy::default() }).await;
    let shared = &bench.worker.shared;
    let s: Destination = "s".parse().unwrap();
    shared.parts.limits.hold(&s, Duration::from_secs(3));
    let (mut delays, woken) = (Delays::default(), Arc::<Notify>::default());
    let mut of = |topic: Topic, wake: &Arc<Notify>| {
        let mut due = DueDestinations::new(topic, Arc::clone(wake));
        due.named(shared, s.clone(), &mut delays);
        let availability = due.check(shared, &mut delays);
        (due, availability)
    };
    let (mut first, keeps_timer) = of(lane().topic, &Arc::default());
    assert!(matches!(keeps_timer, Availability::Later(Some(_))), "{keeps_timer:?}");
    let (_other, has_none) = of("other".parse().unwrap(), &woken);
    assert_eq!(has_none, Availability::Later(None));
    let one = Allowance { concurrency: 1, rate: None };
    let _full = shared.parts.topic_limits.reserve(&lane().topic, one, 1);
    while shared.parts.limits.blocked_by(&s, Allowance::default()).is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(matches!(first.check(shared, &mut delays), Availability::Later(_)));
    let woken = tokio::time::timeout(Duration::from_secs(60), woken.notified()).await;
    assert!(woken.is_ok(), "the other lane is woken");
}

/// A lane kept its position in the queue of its topic, so it was always the first.
#[tokio::test]
async fn the_lanes_of_a_topic_take_turns() {
    let bench = Bench::start(&[("s", 9)], |params| params.enabled = false);
    bench.add(["s"]).await;
    bench.set_policy(TopicPolicy { concurrency: Some(1), ..TopicPolicy::default() }).await;
    let (shared, mut delays) = (&bench.worker.shared, Delays::default());
    let (s, wakes): (Destination, [Arc<Notify>; 2]) = ("s".parse().unwrap(), Default::default());
    let [mut first, mut second] = wakes.clone().map(|wake| {
        let mut due = DueDestinations::new(lane().topic, wake);
        due.named(shared, s.clone(), &mut delays);
        due
    });
    assert_eq!(first.check(shared, &mut delays), Availability::Now);
    let (one, _) = first.reserve(shared, None, &[], 1, &mut delays);
    assert_eq!(one.count(&s), 1);
    for due in [&mut second, &mut first] {
        assert_eq!(due.check(shared, &mut delays), Availability::Later(None));
    }
    drop(one);
    assert!(wakes[1].notified().now_or_never().is_some(), "it is the second lane's turn");
    assert!(wakes[0].notified().now_or_never().is_none());
}

/// It joined no queue while its rate had no token, so only a scan found it afterwards.
#[tokio::test]
async fn a_destination_that_a_reload_configures_joins_its_queue_though_it_is_blocked() {
    let none: [(&str, usize); 0] = [];
    let bench = Bench::start(&none, |params| params.enabled = false);
    let (shared, mut delays) = (&bench.worker.shared, Delays::default());
    let s: Destination = "s".parse().unwrap();
    let mut due = DueDestinations::new(lane().topic, Arc::default());
    due.named(shared, s.clone(), &mut delays);
    assert_eq!(due.check(shared, &mut delays), Availability::Later(None));
    let rate = Some("1/h".parse().unwrap());
    let allowance = Allowance { concurrency: 9, rate };
    shared.parts.services.replace(vec![service("s", allowance)]).unwrap();
    let _token = shared.parts.limits.reserve(&s, allowance, 1);
    assert_eq!(blocked_by(shared, &s), Some(Culprit::Operator));
    due.named(shared, s, &mut delays);
    assert!(matches!(due.check(shared, &mut delays), Availability::Later(Some(_))));
}
