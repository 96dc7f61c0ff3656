//! Runs the capacity model, or measures what it is based on. It prints figures and checks nothing.
//!
//! | `cargo test --release --bench capacity -- …` | prints |
//! |---|---|
//! | `curves` | the figures of the model for many sizes |
//! | `costs` | the time that Redis takes for each script, on this machine |
//! | `memory` | the bytes of a task in Redis |
#![allow(dead_code, unused_imports, reason = "the simulation uses the rest of these modules")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "it prints figures for people")]

mod account;
mod capacity;
mod checker;
mod corners;
mod dice;
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

#[path = "capacity/curves.rs"]
mod curves;
#[path = "capacity/measure.rs"]
mod measure;

#[path = "../support/redis.rs"]
mod redis_server;

#[path = "../store_conformance/model.rs"]
mod model;
#[path = "../store_conformance/record.rs"]
mod record;
#[path = "../store_conformance/schedules_model.rs"]
mod schedules_model;
#[path = "../store_conformance/topics.rs"]
mod topics;

fn main() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    match std::env::args().nth(1).as_deref() {
        Some("curves") => curves::print_the_curves(),
        Some("costs") => runtime().block_on(measure::measure_the_costs()),
        Some("memory") => runtime().block_on(measure::measure_the_memory()),
        other => panic!("expected curves, costs or memory, got {other:?}"),
    }
}
