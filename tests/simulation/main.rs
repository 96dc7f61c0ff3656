//! Thousands of small failure schedules, each from a seed.
//!
//! Several real workers with unchanged logic share one store and one receiver. The store is the
//! specification of the conformance suite, which both real stores have to match. Requests to it are
//! slow, refused, lost, done late or done twice. The receiver fails, hangs and gives wrong answers.
//! Instances crash, pause for longer than their leases, and are restarted. Their messages to each
//! other are lost, and some do not know a service. Clocks are wrong and
//! jump. Tasks are cancelled, rescheduled, pushed back and replayed as they fall due, and topics
//! are paused. Then the faults stop, and every task must end.
//!
//! - [`plan`]: the tasks and faults of a seed. [`dice`]: chance.
//! - [`schedule`]: runs a plan. [`life`]: how an instance is stopped. [`world`]: the real state of
//!   the store. [`store`]: the way to it. [`receiver`]: the receiver of the calls.
//! - [`history`]: the events. [`checker`]: which promises they break, with an [`account`] of each
//!   task and of the topics' [`pauses`], and how late calls may be ([`promptness`]).
//! - [`sabotage`]: broken stores and callers, each of which the checker must detect. [`corners`]:
//!   the situations that the schedules must reach.
//! - [`recurring`]: recurring schedules, their clients and more planners. [`occurrences`]: an
//!   account of them, for the checker.
//! - [`found`]: bugs that were found in this way, as schedules of their own.
//! - [`capacity`]: the same workers over a store that takes time for each request.
//!
//! Time is tokio's, paused: it jumps to the next timer when no task can run.
//! `SIMULATION_SEEDS=100000` runs that many schedules. `SIMULATION_SEED=42` runs one and prints it.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]
#![allow(clippy::print_stdout, reason = "shown by --nocapture: what was found where")]

mod account;
mod capacity;
mod checker;
mod corners;
mod dice;
mod found;
mod history;
mod life;
mod occurrences;
mod pauses;
mod plan;
mod promptness;
mod receiver;
mod recurring;
mod sabotage;
mod schedule;
mod store;
mod world;

#[path = "../support/redis.rs"]
mod redis_server;

#[allow(dead_code, reason = "the conformance suite uses the rest of it")]
#[path = "../store_conformance/model.rs"]
mod model;
#[allow(dead_code, reason = "the conformance suite uses the rest of it")]
#[path = "../store_conformance/record.rs"]
mod record;
#[allow(dead_code, reason = "the conformance suite uses the rest of it")]
#[path = "../store_conformance/schedules_model.rs"]
mod schedules_model;
#[allow(dead_code, reason = "the conformance suite uses the rest of it")]
#[path = "../store_conformance/topics.rs"]
mod topics;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use sabotage::Sabotage;
use schedule::{Report, play};

/// How many schedules run unless the environment says otherwise.
const SEEDS: u64 = 200;

/// The number of seeds within which a sabotage must be detected.
const FOUND_WITHIN: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}"))
    })
}

/// How many schedules run of each kind.
fn seeds() -> u64 {
    number("SIMULATION_SEEDS").unwrap_or(SEEDS)
}

/// Runs all seeds, on as many threads as there are processors, until one breaks a promise. Returns
/// the first report of a broken promise.
fn first_broken(seeds: Range<u64>) -> Option<Report> {
    let next = AtomicU64::new(seeds.start);
    let play_on = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return None;
            }
            let report = play(seed, None);
            if !report.broken.is_empty() {
                next.store(seeds.end, Ordering::Relaxed);
                return Some(report);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().min(8));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(play_on)).collect();
        let broken =
            threads.into_iter().filter_map(|thread| thread.join().expect("no schedule panics"));
        broken.min_by_key(|report| report.seed)
    })
}

#[test]
fn no_schedule_breaks_a_promise() {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..seeds(),
    };
    if let Some(report) = first_broken(seeds) {
        panic!(
            "{report}\nAgain: SIMULATION_SEED={} cargo test --test simulation no_schedule",
            report.seed
        );
    }
}

#[test]
fn every_sabotage_is_detected() {
    for (sabotage, expected) in Sabotage::ALL {
        let finds = |seed| {
            let report = play(seed, Some(*sabotage));
            report
                .broken
                .into_iter()
                .find(|broken| expected.contains(&broken.violation))
                .map(|broken| (seed, broken))
        };
        let known = sabotage::KNOWN_SEEDS.iter().filter(|(known, _)| known == sabotage);
        let (seed, broken) = known
            .map(|(_, seed)| *seed)
            .chain(0..FOUND_WITHIN)
            .find_map(finds)
            .unwrap_or_else(|| panic!("{sabotage:?} was not detected in {FOUND_WITHIN} seeds"));
        println!(
            "{sabotage:?}: detected with seed {seed}: {:?}, {}",
            broken.violation, broken.text
        );
    }
}

/// Without this a failing seed could not be reproduced.
#[test]
fn a_seed_repeats_itself() {
    for seed in 0..(seeds() / 5).min(100) {
        let [first, second] = [play(seed, None), play(seed, None)].map(|report| {
            report.history.events.iter().map(ToString::to_string).collect::<Vec<_>>()
        });
        let difference = first.iter().zip(&second).find(|(first, second)| first != second);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}
