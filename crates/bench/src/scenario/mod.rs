//! The scenarios: one file for each, with its options.

use crate::error::Error;
use crate::figures::Figures;
use crate::stage::{Needs, Stage};
use crate::target::Store;

mod add;
mod add_batch;
mod bare;
mod burst;
mod calls;
mod flood;
mod idle;
mod in_flight;
mod lateness;
mod options;
mod pending;
mod pull;
mod raw_redis;
mod topics;

/// A scenario with its options.
#[derive(Debug, clap::Subcommand, serde::Serialize)]
#[serde(untagged)]
pub enum Scenario {
    /// Add tasks, one per request
    Add(add::Params),
    /// Add tasks, many per request
    AddBatch(add_batch::Params),
    /// Tasks that are all due at the same moment
    Burst(burst::Params),
    /// Tasks that are due at a steady rate: their lateness
    Lateness(lateness::Params),
    /// Consumers that pull and acknowledge
    Pull(pull::Params),
    /// Idle topics: their cost
    Idle(idle::Params),
    /// Many concurrent calls: the memory of each
    InFlight(in_flight::Params),
    /// Adds and callbacks over many topics
    Topics(topics::Params),
    /// A topic with a flood of tasks, beside quiet ones
    Flood(flood::Params),
    /// Many waiting tasks: their memory, and whether they slow down the rest
    Pending(pending::Params),
    /// Limit: the same requests to a server that stores nothing
    Bare(bare::Params),
    /// Limit: calls by reqwest to a server that only answers
    Calls(calls::Params),
    /// Limit: what Redis alone can store
    RawRedis(raw_redis::Params),
}

impl Scenario {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::AddBatch(_) => "add-batch",
            Self::Burst(_) => "burst",
            Self::Lateness(_) => "lateness",
            Self::Pull(_) => "pull",
            Self::Idle(_) => "idle",
            Self::InFlight(_) => "in-flight",
            Self::Topics(_) => "topics",
            Self::Flood(_) => "flood",
            Self::Pending(_) => "pending",
            Self::Bare(_) => "bare",
            Self::Calls(_) => "calls",
            Self::RawRedis(_) => "raw-redis",
        }
    }

    /// Why it cannot run with this store, or with a running service; `None` if it can.
    pub fn objection(&self, store: &Store, is_running: bool) -> Option<&'static str> {
        match (self, store) {
            (
                Self::Idle(_)
                | Self::InFlight(_)
                | Self::Bare(_)
                | Self::Calls(_)
                | Self::RawRedis(_),
                _,
            ) if is_running => Some("measures processes that it starts itself: leave out --server"),
            (Self::Idle(params), Store::Embedded) if params.instances > 1 => {
                Some("several instances share only a Redis: add --store redis")
            }
            (Self::RawRedis(_), Store::Embedded) => Some("needs a Redis: add --store redis"),
            _ => None,
        }
    }

    /// Whether this runs the bare server that a scenario measures, instead of a scenario.
    pub fn is_bare_server(&self) -> bool {
        matches!(self, Self::Bare(params) if params.serve)
    }

    /// The requirements for a started service, given the limit of open files.
    ///
    /// # Errors
    /// If this machine cannot meet them.
    pub(super) fn needs(&self, open_files: u64) -> Result<Needs, Error> {
        let instances = |instances| Ok(Needs { instances, ..Needs::default() });
        match self {
            Self::Idle(params) => instances(params.instances.into()),
            Self::InFlight(params) => params.needs(open_files),
            Self::Bare(_) | Self::Calls(_) | Self::RawRedis(_) => instances(0),
            _ => instances(1),
        }
    }

    pub(super) async fn play(&self, stage: &Stage) -> Result<Figures, Error> {
        match self {
            Self::Add(params) => add::play(stage, params).await,
            Self::AddBatch(params) => add_batch::play(stage, params).await,
            Self::Burst(params) => burst::play(stage, params).await,
            Self::Lateness(params) => lateness::play(stage, params).await,
            Self::Pull(params) => pull::play(stage, params).await,
            Self::Idle(params) => idle::play(stage, params).await,
            Self::InFlight(params) => in_flight::play(stage, params).await,
            Self::Topics(params) => topics::play(stage, params).await,
            Self::Flood(params) => flood::play(stage, params).await,
            Self::Pending(params) => pending::play(stage, params).await,
            Self::Bare(params) => bare::play(stage, params).await,
            Self::Calls(params) => calls::play(stage, params).await,
            Self::RawRedis(params) => raw_redis::play(stage, params).await,
        }
    }
}
