//! Drills: the real program under a real fault and a real load, with an account of every task
//! afterwards.
//!
//! A drill has two forms. The *short* one belongs to the ordinary suite: it takes seconds and does
//! not depend on the machine's speed. The *long* one (`DRILLS=long`, set by `scripts/drills`)
//! repeats the fault more often, and also checks the promises about time. Each drill prints one
//! row: accepted, delivered, lost, early, duplicates by cause, the slowest redelivery after a
//! crash, lateness. If `DRILL_TABLE` names a file, the row is added to it.
//!
//! # What every drill checks
//!
//! - Lost 0: each task whose add was answered with success ends as delivered, and its callback
//!   arrived.
//! - Early 0: no callback came before its due millisecond.
//! - A duplicate is a callback for a task whose callback was answered with success before. It must
//!   coincide with a fault that may cause it. [`account`] says how that is known.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, a panic is the report")]
#![allow(
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "a test crate has no API, and no drill uses all of it"
)]

mod account;
mod bad_receiver;
mod fleet;
mod full;
mod island;
mod load;
mod machine;
mod moving;
mod nested;
mod outside;
mod probe;
mod prometheus;
mod row;
mod strace;
mod verdict;

mod alerts;
mod crash;
mod disk;
mod failover;
mod failover_cluster;
mod failover_partition;
mod frozen;
mod membership;
mod neighbours;
mod overload;
mod pause;
mod receivers;
mod redis;
mod redis_disk;
mod redis_trouble;
mod rolling;
mod schedules;
mod slow_callers;
mod soak;
mod time;

#[path = "../support/fake_time.rs"]
mod fake_time;
#[path = "../support/grafana.rs"]
mod grafana;
#[path = "../support/open_loop.rs"]
mod open_loop;
#[path = "../support/poll.rs"]
mod poll;
#[path = "../it/program.rs"]
mod program;
#[path = "../it/receiver.rs"]
mod receiver;
#[path = "../support/redis_many.rs"]
mod redis_many;
#[path = "../support/redis.rs"]
mod redis_server;
#[path = "../support/slow_wire.rs"]
mod slow_wire;

/// Whether the drills run in their long form.
pub fn is_long() -> bool {
    std::env::var("DRILLS").is_ok_and(|form| form == "long")
}

/// How often a drill repeats its fault: `DRILL_ROUNDS` if set, otherwise by its form.
pub fn rounds(short: usize, long: usize) -> usize {
    let set = std::env::var("DRILL_ROUNDS")
        .ok()
        .map(|rounds| rounds.parse().expect("DRILL_ROUNDS is a number"));
    set.unwrap_or(if is_long() { long } else { short })
}

/// The service that most drills call.
pub const SERVICE: &str = "message.call";

/// Settings under which a fault shows within seconds: a short lease, and calls that need no longer
/// lease.
pub fn quick_settings(endpoint: &str, lease: std::time::Duration) -> Vec<String> {
    vec![
        service(SERVICE, endpoint),
        format!("worker.lease=\"{}ms\"", lease.as_millis()),
        "callback.timeout=\"800ms\"".into(),
        // A long fault must not use up a task's attempts.
        "callback.retry.max_attempts=1000".into(),
        "callback.retry.backoff={kind=\"fixed\", every=\"200ms\"}".into(),
        // A recovered receiver is tried soon.
        "callback.breaker.open=\"300ms\"".into(),
        "callback.breaker.open_max=\"1s\"".into(),
        quiet(),
    ]
}

/// The setting that omits log lines that a load would repeat a thousand times.
pub fn quiet() -> String {
    "log.level=\"warn,delayd::cli=info\"".into()
}

/// The setting that makes an address a service.
pub fn service(name: &str, endpoint: &str) -> String {
    format!("services.\"{name}\".endpoints=[\"{endpoint}\"]")
}

/// Whether the condition holds within a minute.
pub async fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    poll::until(async || is_so()).await
}
