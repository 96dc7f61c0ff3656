//! Requests, and the adds among them.

use std::time::Duration;

use delayd_wire::Way;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::label_value;
use super::{durations, observe};

label_value! {
    /// The result of an add.
    pub AddResult {
        /// A task was stored.
        New = "new",
        /// The idempotency key had a task already.
        Duplicate = "duplicate",
        /// The waiting task of the key was given a new moment and content.
        Replaced = "replaced",
    }
}

label_value! {
    /// Why a request was refused.
    pub Rejection {
        /// No slot was free in time.
        Concurrency = "concurrency",
        /// The memory for bodies, or for answers, was used up.
        Memory = "memory",
        /// The token is missing or unknown.
        Unauthenticated = "unauthenticated",
        /// The token, or the page of another origin, may not do this.
        Forbidden = "forbidden",
        /// The rate of the token is used up.
        TokenRate = "token_rate",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Added {
    mode: &'static str,
    result: AddResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejected {
    reason: Rejection,
}

/// What is counted where requests come in.
#[derive(Debug)]
pub struct ApiMetrics {
    added: Family<Added, Counter>,
    add_duration: Histogram,
    requests: Family<Answered, Counter>,
    rejected: Family<Rejected, Counter>,
}

impl ApiMetrics {
    pub(super) fn register(
        registry: &mut Registry,
        routes: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let metrics = Self {
            added: Family::default(),
            add_duration: durations(),
            requests: Family::default(),
            rejected: Family::default(),
        };
        registry.register(
            "tasks_added",
            "Accepted adds, by delivery mode and result",
            metrics.added.clone(),
        );
        registry.register_with_unit(
            "add_duration",
            "Time that an add or a batch of adds takes, once its body has been read",
            Unit::Seconds,
            metrics.add_duration.clone(),
        );
        registry.register(
            "http_requests",
            "Requests that were answered, by route and HTTP status; a status other than 200 \
             appears with its first answer, and paths without a route are the route \"other\"",
            metrics.requests.clone(),
        );
        registry.register(
            "http_rejected",
            "Requests that were refused to protect the service, by reason",
            metrics.rejected.clone(),
        );
        for mode in [Way::Push, Way::Pull].map(Way::as_str) {
            for &result in AddResult::ALL {
                drop(metrics.added.get_or_create(&Added { mode, result }));
            }
        }
        for route in routes {
            drop(metrics.requests.get_or_create(&Answered { route, code: 200 }));
        }
        for &reason in Rejection::ALL {
            drop(metrics.rejected.get_or_create(&Rejected { reason }));
        }
        metrics
    }

    /// A task was added.
    pub fn added(&self, way: Way, result: AddResult) {
        let mode = way.as_str();
        self.added.get_or_create(&Added { mode, result }).inc();
    }

    /// How many tasks were stored or replaced.
    pub(super) fn added_in_all(&self) -> u64 {
        let count = |mode: Way, result| {
            self.added.get_or_create(&Added { mode: mode.as_str(), result }).get()
        };
        [Way::Push, Way::Pull]
            .map(|mode| count(mode, AddResult::New) + count(mode, AddResult::Replaced))
            .iter()
            .sum()
    }

    /// An add, or a batch of them, was answered after this time.
    pub fn add_took(&self, time: Duration) {
        observe(&self.add_duration, time);
    }

    /// A request was answered.
    pub fn answered(&self, route: &'static str, code: u16) {
        self.requests.get_or_create(&Answered { route, code }).inc();
    }

    /// A request was refused.
    pub fn rejected(&self, reason: Rejection) {
        self.rejected.get_or_create(&Rejected { reason }).inc();
    }

    /// The counter of one reason.
    pub fn rejections(&self, reason: Rejection) -> Counter {
        self.rejected.get_or_create(&Rejected { reason }).clone()
    }
}
