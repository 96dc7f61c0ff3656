//! What the simulation has found, each as a schedule that goes straight for it.
//!
//! They are small plans played with many seeds, so that they outlive changes of the plans at large.

use std::time::Duration;

use delayd::model::breaker;
use delayd::store::TopicEntry;

use crate::plan::{Add, Mishap, Plan, Settings, StoreFaults, TopicPause};
use crate::schedule::play_plan;
use crate::seeds;

fn one_add() -> Add {
    Add {
        topic: 0,
        service: 0,
        delay: Duration::from_secs(1),
        key: None,
        expires_after: None,
        on_dead: None,
    }
}

/// One instance, one task due after a second, and one pause at about that time.
fn one_task(lease: Duration, pause: (Duration, Duration)) -> Plan {
    let (at, span) = pause;
    Plan {
        topics: vec![TopicEntry { topic: "orders".parse().unwrap(), shards: 1 }],
        services: 1,
        settings: Settings {
            lease,
            timeout: Duration::from_secs(2),
            claim_batch: 10,
            concurrency: 64,
            concurrency_per_service: 32,
            idle_stop: Duration::from_secs(6),
            max_attempts: 6,
            breaker: breaker::Params::default(),
        },
        instances: vec![(0, vec![(at, Mishap::Pause { span })])],
        adds: vec![(Duration::ZERO, one_add())],
        recounts: Vec::new(),
        pauses: Vec::new(),
        jumps: Vec::new(),
        outages: Vec::new(),
        store: StoreFaults { share: 0, latency_ms: 20 },
        bad_calls: 0,
        call_ms: 100,
        meddling: 0,
        length: Duration::from_secs(20),
    }
}

fn check(seed: u64, plan: Plan) {
    let report = play_plan(plan, seed, None);
    assert!(report.broken.is_empty(), "{report}");
}

/// Its instance stood still after the call and woke when the lease had run out and the task had
/// been rescheduled. It was handed the task anew before its settle arrived, and ended the new
/// revision with the success of the old one: the new content was never sent.
#[test]
fn a_success_of_before_a_reschedule_does_not_end_the_task_in_the_name_of_a_newer_lease() {
    for seed in 0..seeds().min(600) {
        let pause = (Duration::from_millis(1_000 + seed % 150), Duration::from_secs(8));
        check(seed, Plan { meddling: 1_000, ..one_task(Duration::from_secs(5), pause) });
    }
}

/// While the store took no settles, its lane waited to claim; meanwhile the instance learned that
/// the topic was paused, and claimed from it all the same when the wait was over.
#[test]
fn a_lane_that_waits_for_the_settles_claims_nothing_of_a_topic_that_is_paused_meanwhile() {
    for seed in 0..seeds().min(400) {
        let adds = (0..6).map(|n| (Duration::from_millis(200 * n), one_add())).collect();
        let pauses = (0..3).map(|n| {
            let pause = TopicPause { topic: 0, span: Duration::from_millis(1_500), becomes: None };
            (Duration::from_millis(1_300 + 2_200 * n + seed), pause)
        });
        let store = StoreFaults { share: 300, latency_ms: 2 };
        let calm =
            one_task(Duration::from_secs(5), (Duration::from_secs(15), Duration::from_millis(1)));
        check(seed, Plan { adds, pauses: pauses.collect(), store, bad_calls: 500, ..calm });
    }
}

/// A lease too short for a call is extended first. The answer was known only when little was left
/// of the extended one, and the call began all the same.
#[test]
fn a_call_does_not_begin_on_the_rest_of_an_extended_lease() {
    for seed in 0..seeds().min(200) {
        let pause = (
            Duration::from_millis(1_000 + seed % 60),
            Duration::from_millis(4_600 + 10 * (seed % 40)),
        );
        check(seed, one_task(Duration::from_secs(3), pause));
    }
}
