//! The scenarios: one file for each, with its options.

use anyhow::Result;

use crate::figures::Figures;
use crate::stage::Stage;
use crate::target::Target;

mod add;
mod bare;
mod burst;
mod calls;
mod flood;
mod idle;
mod lateness;
mod options;
mod pending;
mod pull;

/// A scenario with its options.
#[derive(Debug, clap::Subcommand, serde::Serialize)]
#[serde(tag = "scenario", content = "options", rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// Add tasks, one per request or many
    Add(add::Params),
    /// Tasks that are all due at the same moment
    Burst(burst::Params),
    /// Tasks that are due at a steady rate: their lateness
    Lateness(lateness::Params),
    /// Consumers that pull and acknowledge
    Pull(pull::Params),
    /// Idle topics: their cost
    Idle(idle::Params),
    /// A topic with a flood of tasks, beside quiet ones
    Flood(flood::Params),
    /// Many waiting tasks: their memory, and whether they slow down the rest
    Pending(pending::Params),
    /// Limit: the same requests to a server that stores nothing
    Bare(bare::Params),
    /// Limit: calls by reqwest to a server that only answers
    Calls(calls::Params),
}

impl Scenario {
    /// Why it cannot run with this store, or with a running service; `None` if it can.
    pub(crate) fn objection(&self, target: &Target) -> Option<&'static str> {
        match self {
            Self::Idle(_) | Self::Bare(_) | Self::Calls(_) if target.server.is_some() => {
                Some("this scenario measures processes that it starts itself: leave out --server")
            }
            Self::Idle(params) if params.instances > 1 && !target.is_redis() => {
                Some("several instances share only a Redis: add --store redis")
            }
            _ => None,
        }
    }

    /// The instances of the service that it needs.
    pub(crate) fn instances(&self) -> u8 {
        match self {
            Self::Idle(params) => params.instances,
            Self::Bare(_) | Self::Calls(_) => 0,
            _ => 1,
        }
    }

    pub(crate) async fn play(&self, stage: &Stage) -> Result<Figures> {
        match self {
            Self::Add(params) => add::play(stage, params).await,
            Self::Burst(params) => burst::play(stage, params).await,
            Self::Lateness(params) => lateness::play(stage, params).await,
            Self::Pull(params) => pull::play(stage, params).await,
            Self::Idle(params) => idle::play(stage, params).await,
            Self::Flood(params) => flood::play(stage, params).await,
            Self::Pending(params) => pending::play(stage, params).await,
            Self::Bare(params) => bare::play(stage, params).await,
            Self::Calls(params) => calls::play(stage, params).await,
        }
    }
}
