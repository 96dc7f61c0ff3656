//! The settings of the workers, and the parts that they are built from.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::callback::{Client, Services};
use crate::instances::Instances;
use crate::limits::{DestinationLimits, TopicLimits};
use crate::metrics::Metrics;
use crate::model::clock::Clock;
use crate::outcome::Policy;
use crate::store::AnyStore;
use crate::topic::Registry;
use crate::trace::Tracer;

/// The settings of the workers.
#[derive(Clone, Debug)]
pub struct Params {
    /// Whether this instance claims tasks. If not, it only follows the registry and the holds.
    pub enabled: bool,
    /// How long a claimed task is leased (`worker.lease`).
    pub lease: Duration,
    /// A lane's tokio task ends after this time without work (`worker.idle_stop`).
    pub idle_stop: Duration,
    /// The most tasks of one claim (`worker.claim_batch`).
    pub claim_batch: usize,
    /// What follows a failure, unless the task or its topic says otherwise.
    pub policy: Policy,
    /// How long one call may take, unless the task or its topic says otherwise.
    pub timeout: Duration,
    /// Which attempts are noted (`history.attempts`).
    pub noted: NotedAttempts,
    /// The time between two safety polls. It is 1 s; only tests change it.
    pub poll_every: Duration,
}

/// Which attempts are noted (`history.attempts`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotedAttempts {
    /// All of them.
    All,
    /// The failed ones.
    Failures,
    /// None.
    #[serde(rename = "none")]
    Nothing,
}

/// What the workers need from outside. Tests replace the store and the caller.
#[derive(Debug)]
pub struct Parts<S = AnyStore, C = Client> {
    /// The store.
    pub store: Arc<S>,
    /// The topics.
    pub topics: Arc<Registry<S>>,
    /// Makes the calls.
    pub client: C,
    /// The services that are called.
    pub services: Arc<Services>,
    /// The limits of destinations.
    pub limits: DestinationLimits,
    /// The limits of topics.
    pub topic_limits: TopicLimits,
    /// The instances.
    pub instances: Arc<Instances>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// This instance's clock.
    pub clock: Clock,
    /// Makes the spans of attempts.
    pub tracer: Tracer,
}
