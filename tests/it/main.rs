//! delayd as its users meet it: the real program, real sockets, a real receiver, a real Redis.
//!
//! A test of a promise that holds for both stores is written once, and appears as `embedded::…` and
//! `redis::…`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, a panic is the report")]
#![allow(unreachable_pub, missing_docs, reason = "a test crate has no API")]

mod admin;
mod audit;
mod backup;
mod bad_clients;
mod bad_input;
mod callbacks;
mod client_samples;
mod command_line;
mod crash;
mod dashboard;
mod destinations;
mod disk;
mod documentation;
mod fairness;
mod follow;
mod forecast;
mod fsck;
mod held_wire;
mod history_contents;
mod https;
mod image;
mod kept_data;
mod keys;
mod later;
mod lists;
mod live;
mod load;
mod long_poll;
mod metrics;
mod metrics_causes;
mod monitoring;
mod moving;
mod moving_changes;
mod moving_schedules;
mod nginx;
mod oauth;
mod older_format;
mod openapi;
mod original_clients;
mod outbox;
mod proxy;
mod public_origins;
mod pull;
mod receiver;
mod receiver_samples;
mod redis_faults;
mod redis_reads;
mod redis_tls;
mod reload;
mod rolling_restart;
mod round_trips;
mod sampler;
mod schedules;
mod security;
mod service_headers;
mod service_tls;
mod start_and_stop;
mod store_id;
mod success_rules;
mod times;
mod topic_creators;
mod traces;
mod two_instances;
mod verbs;

mod nightly;

mod program;

#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/fake_time.rs"]
mod fake_time;
#[path = "../support/grafana.rs"]
mod grafana;
#[path = "../support/open_loop.rs"]
mod open_loop;
#[path = "../support/poll.rs"]
mod poll;
#[path = "../support/redis_many.rs"]
mod redis_many;
#[path = "../support/redis.rs"]
mod redis_server;
#[path = "../support/slow_wire.rs"]
mod slow_wire;

use program::{Program, StoreAt};

/// A store for one test, and the folder that it needs.
pub struct Kept {
    pub store: StoreAt,
    _folder: Option<tempfile::TempDir>,
}

impl Kept {
    pub fn embedded() -> Self {
        let folder = program::folder();
        Self { store: program::embedded(folder.path()), _folder: Some(folder) }
    }

    /// A key prefix of its own on the Redis of the test process.
    pub fn redis() -> Self {
        let prefix = format!("it{:016x}", rand::random::<u64>());
        Self { store: StoreAt::Redis(redis_server::shared().port(), prefix), _folder: None }
    }

    /// The key prefix of a Redis store.
    pub fn prefix(&self) -> &str {
        match &self.store {
            StoreAt::Redis(_, prefix) => prefix,
            other => panic!("{other:?} has no key prefix"),
        }
    }

    /// Starts the program with further settings, and with timeouts that a busy machine does not
    /// reach.
    pub async fn start(&self, sets: &[String]) -> Program {
        let says = |key: &str| sets.iter().any(|set| set.starts_with(key));
        let mut all = vec!["callback.connect_timeout=\"15s\"".to_owned()];
        // A lease is longer than this timeout.
        if matches!(self.store, StoreAt::Redis(..)) && !says("worker.lease") {
            all.push("store.redis.timeout=\"20s\"".into());
        }
        all.extend_from_slice(sets);
        self.start_as_shipped(&all).await
    }

    /// Starts the program with further settings, and otherwise with its own defaults.
    pub async fn start_as_shipped(&self, sets: &[String]) -> Program {
        Program::start(&self.store, sets).await
    }
}

/// Runs each async fn that takes a `Kept` once per store.
#[macro_export]
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::Kept::embedded()).await;
            })+
        }

        mod redis {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::Kept::redis()).await;
            })+
        }
    };
}
