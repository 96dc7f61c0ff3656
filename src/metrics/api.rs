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
struct AddLabels {
    mode: &'static str,
    result: AddResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
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
    /// By way and result.
    added: [Vec<Counter>; 2],
    add_duration: Histogram,
    requests: Family<AnswerLabels, Counter>,
    /// The routes, and their requests with status 200.
    routes: Vec<(&'static str, Counter)>,
    rejected: Family<Rejected, Counter>,
}

impl ApiMetrics {
    pub(super) fn register(
        registry: &mut Registry,
        routes: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let added = Family::<AddLabels, Counter>::default();
        let requests = Family::<AnswerLabels, Counter>::default();
        let succeeded =
            |route| (route, requests.get_or_create_owned(&AnswerLabels { route, code: 200 }));
        let routes = routes.into_iter().map(succeeded).collect();
        let metrics = Self {
            added: [Way::Push, Way::Pull].map(|way| {
                let mode = way.as_str();
                let counter = |&result| added.get_or_create_owned(&AddLabels { mode, result });
                AddResult::ALL.iter().map(counter).collect()
            }),
            add_duration: durations(),
            requests,
            routes,
            rejected: Family::default(),
        };
        registry.register("tasks_added", "Accepted adds, by delivery mode and result", added);
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
        for &reason in Rejection::ALL {
            drop(metrics.rejected.get_or_create(&Rejected { reason }));
        }
        metrics
    }

    /// A task was added.
    pub fn added(&self, way: Way, result: AddResult) {
        self.added[way as usize][result as usize].inc();
    }

    /// How many tasks were stored or replaced.
    pub(super) fn added_in_all(&self) -> u64 {
        let counts = |way: &Vec<Counter>| {
            way[AddResult::New as usize].get() + way[AddResult::Replaced as usize].get()
        };
        self.added.iter().map(counts).sum()
    }

    /// An add, or a batch of them, was answered after this time.
    pub fn add_took(&self, time: Duration) {
        observe(&self.add_duration, time);
    }

    /// A request was answered. `route` is the number of its route, from 0, in the order in which
    /// they were registered; an unknown number counts as the last.
    pub fn answered(&self, route: usize, code: u16) {
        match self.routes.get(route).or(self.routes.last()) {
            Some((_, succeeded)) if code == 200 => {
                succeeded.inc();
            }
            Some((route, _)) => {
                self.requests.get_or_create(&AnswerLabels { route, code }).inc();
            }
            None => {}
        }
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
