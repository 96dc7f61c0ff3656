//! What can be tried: one file per scenario, its options included.

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

/// What is tried, and how much of it.
#[derive(Debug, clap::Subcommand, serde::Serialize)]
#[serde(untagged)]
pub enum Scenario {
    /// Adds, one a request
    Add(add::Params),
    /// Adds, many a request
    AddBatch(add_batch::Params),
    /// Tasks that are all due at the same moment
    Burst(burst::Params),
    /// Tasks that are due evenly: how late they come
    Lateness(lateness::Params),
    /// Consumers who pull and acknowledge
    Pull(pull::Params),
    /// Topics in which nothing happens: what they cost
    Idle(idle::Params),
    /// Calls that are all under way at once: the memory of each
    InFlight(in_flight::Params),
    /// Adds and callbacks over many topics
    Topics(topics::Params),
    /// One flooded topic beside quiet ones
    Flood(flood::Params),
    /// Much that waits: its memory, and whether it slows the rest
    Pending(pending::Params),
    /// The limit: the same requests to a service that stores nothing
    Bare(bare::Params),
    /// The limit: the calls of the callback client to a server that only answers
    Calls(calls::Params),
    /// The limit: what Redis alone can store
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

    /// Why it cannot be played with this store, or with a service that runs already; nothing if it
    /// can.
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
            (Self::RawRedis(_), Store::Embedded) => Some("tries a Redis: add --store redis"),
            _ => None,
        }
    }

    /// Whether this is no scenario, but the bare server that one of them measures.
    pub fn is_bare_server(&self) -> bool {
        matches!(self, Self::Bare(params) if params.serve)
    }

    /// What it needs of the service that is started for it, which may have as many open files.
    ///
    /// # Errors
    /// If this machine cannot give that.
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
