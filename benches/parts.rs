//! Micro-benchmarks of the parts that every task passes through: its request, its record, the
//! outcome of an answer, the circuit breaker, the slots.
//!
//! ```sh
//! cargo bench --bench parts --features benching
//! ```
//!
//! They show the effect of a change of one part. `delayd-bench` measures delayd as a whole.

#![allow(missing_docs, reason = "divan's macros generate items without documentation")]

use std::time::Duration;

use delayd::api::measured::Requests;
use delayd::callback::{Answer, Fault, LONGEST_RETRY_AFTER};
use delayd::limits::{Allowance, DestinationLimits, LimitParams};
use delayd::model::breaker::{self, Breaker, Verdict};
use delayd::model::task::{Destination, Options};
use delayd::outcome::{self, Policy};
use delayd::store::redis::measured as record;
use delayd_wire::Backoff;
use delayd_wire::Span;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use tokio::time::Instant;

/// The same allocator as the program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// A task of 200 bytes of content.
fn task() -> String {
    let pad = "x".repeat(160);
    format!(
        "{{\"topic\":\"orders\",\"timing_moment\":1795236367.042,\
         \"content\":{{\"sn\":\"message.call\",\"url\":\"/cancel\",\"pad\":\"{pad}\"}}}}"
    )
}

#[divan::bench]
fn request_of_one_task(bencher: Bencher<'_, '_>) {
    let (requests, body) = (Requests::new(), task());
    bencher
        .counter(BytesCount::of_str(&body))
        .bench_local(|| requests.add(black_box(body.as_bytes())));
}

#[divan::bench(args = [10, 500])]
fn request_of_many_tasks(bencher: Bencher<'_, '_>, tasks: usize) {
    let requests = Requests::new();
    let body = format!(r#"{{"tasks":[{}]}}"#, vec![task(); tasks].join(","));
    bencher
        .counter(ItemsCount::new(tasks))
        .bench_local(|| requests.add_batch(black_box(body.as_bytes())));
}

#[divan::bench]
fn record_is_read(bencher: Bencher<'_, '_>) {
    let bytes = record::written(&Options::default(), &task()).into_bytes();
    bencher.with_inputs(|| bytes.clone()).bench_local_values(record::read);
}

#[divan::bench]
fn record_with_options_is_read(bencher: Bencher<'_, '_>) {
    let bytes = record::written(&options(), &task()).into_bytes();
    bencher.with_inputs(|| bytes.clone()).bench_local_values(record::read);
}

#[divan::bench]
fn options_are_written(bencher: Bencher<'_, '_>) {
    let options = options();
    bencher.bench_local(|| record::options(black_box(&options)));
}

fn options() -> Options {
    Options {
        max_attempts: Some(5),
        timeout: Some(Span::seconds(3)),
        backoff: Some(Backoff::Fixed { every: Span::seconds(30) }),
        ..Options::default()
    }
}

/// An answer of one kind.
fn answer(kind: &str) -> Answer {
    match kind {
        "delivered" => Answer::delivered("200 OK"),
        _ => Answer::Failed {
            outcome: "503 Service Unavailable".into(),
            retry_after: None,
            hold: None,
            fault: Fault::Task,
        },
    }
}

#[divan::bench(args = ["delivered", "failed"])]
fn outcome_of_an_answer(bencher: Bencher<'_, '_>, kind: &str) {
    let backoff = Backoff::Exponential {
        base: Span::seconds(1),
        factor: 2.0,
        max: Span::seconds(10_800),
        jitter: 0.2,
    };
    let (policy, answer) = (Policy { max_attempts: 22, backoff }, answer(kind));
    bencher.bench_local(|| {
        outcome::of(black_box(&policy), Duration::from_secs(30), 3, black_box(&answer), 0.5)
    });
}

#[divan::bench]
fn breaker_permits_a_call(bencher: Bencher<'_, '_>) {
    let now = Instant::now();
    let mut breaker = Breaker::new(breaker::Params::default(), now);
    bencher.bench_local(|| {
        let mut ticket = breaker.reserve(now).expect("a closed breaker permits calls");
        breaker.begin(&mut ticket, now, Duration::from_secs(15));
        breaker.end(ticket, Some(Verdict::Success), now);
    });
}

/// The number of free slots of a destination, beside others. A worker asks for it before each
/// claim.
#[divan::bench(args = [1, 100, 10_000])]
fn free_slots_are_counted(bencher: Bencher<'_, '_>, destinations: usize) {
    let (limits, names) = limits_with(destinations);
    let mut turn = names.iter().cycle();
    bencher.bench_local(|| limits.free(turn.next().expect("a cycle"), Allowance::default()));
}

/// A claim reserves slots, and its calls release them one after the other.
#[divan::bench(args = [1, 100, 10_000])]
fn slots_are_reserved_and_released(bencher: Bencher<'_, '_>, destinations: usize) {
    let (limits, names) = limits_with(destinations);
    let mut turn = names.iter().cycle();
    bencher.counter(ItemsCount::new(8_usize)).bench_local(|| {
        let mut permits = limits.reserve(turn.next().expect("a cycle"), Allowance::default(), 8);
        while let Some(mut permit) = permits.split_one() {
            permit.begin(Duration::from_secs(15));
            permit.succeeded();
        }
    });
}

/// Limits that know this many destinations, each with a call in the past.
fn limits_with(destinations: usize) -> (DestinationLimits, Vec<Destination>) {
    let params = LimitParams {
        concurrency: 16_384,
        concurrency_per_service: 256,
        breaker: breaker::Params::default(),
        retry_after_max: LONGEST_RETRY_AFTER,
    };
    let limits = DestinationLimits::new(params);
    let names = (0..destinations).map(|n| format!("service-{n}").parse().expect("a name"));
    let names: Vec<Destination> = names.collect();
    for name in &names {
        drop(limits.reserve(name, Allowance::default(), 1));
    }
    (limits, names)
}
