//! The bugs that the simulation has found, each as a schedule of its own.
//!
//! They are small plans that run with many seeds, so that they stay when the general plans change.

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

/// One instance, one task that is due after a second, and one pause at about that time.
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
        lost_messages: 0,
        lacking: Vec::new(),
        ailment: None,
        of_old_version: Vec::new(),
        bad_calls: 0,
        call_ms: 100,
        meddling: 0,
        recurring: Vec::new(),
        failovers: Vec::new(),
        length: Duration::from_secs(20),
    }
}

fn check(seed: u64, plan: Plan) {
    let report = play_plan(plan, seed, None);
    assert!(report.broken.is_empty(), "{report}");
}

/// The instance paused after the call. When it went on, its lease had expired and the task had been
/// rescheduled. It got the task again before its settle arrived. The success of the old revision
/// then ended the new one, and the new content was never sent.
#[test]
fn a_success_before_a_reschedule_does_not_end_the_new_revision() {
    for seed in 0..seeds().min(600) {
        let pause = (Duration::from_millis(1_000 + seed % 150), Duration::from_secs(8));
        check(seed, Plan { meddling: 1_000, ..one_task(Duration::from_secs(5), pause) });
    }
}

/// While the store took no settles, the lane waited to claim. Meanwhile the instance learned that
/// the topic was paused. After the wait it still sent its claim.
#[test]
fn a_lane_that_waits_for_settles_claims_nothing_after_a_pause() {
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

/// A lease that is too short for a call is extended first. The answer came when little was left of
/// the extended lease, and the call still began.
#[test]
fn a_call_does_not_begin_with_little_left_of_its_lease() {
    for seed in 0..seeds().min(200) {
        let pause = (
            Duration::from_millis(1_000 + seed % 60),
            Duration::from_millis(4_600 + 10 * (seed % 40)),
        );
        check(seed, one_task(Duration::from_secs(3), pause));
    }
}
