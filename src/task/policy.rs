//! What a topic asks for instead of the configuration.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::rate::Rate;
use crate::retry::Backoff;
use crate::span::Span;

/// How a task leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Pushed if its content says to whom.
    #[default]
    Auto,
    /// Called back.
    Push,
    /// Fetched by consumers.
    Pull,
}

/// What becomes of the tasks that fell due while their topic was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MisfirePolicy {
    /// They are delivered late.
    #[default]
    Fire,
    /// They expire undelivered.
    Skip,
    /// They die, and can be replayed.
    Dead,
}

/// A topic's settings; what is absent follows the configuration. A task's own [`Options`](super::Options) go before them. Kept in the
/// registry as JSON; fields may be added, and unknown ones of a newer version are left alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopicPolicy {
    /// Calls before a task dies, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Answers that end a task at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_statuses: Option<Vec<u16>>,
    /// How long one call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How its tasks leave unless they say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The most calls (or pulled tasks) in a time, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The most calls at a time, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// The most waiting and leased tasks. Each lane takes its share, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// How long ended tasks are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_keep: Option<Span>,
    /// How many ended tasks are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_max: Option<u64>,
    /// What becomes of what fell due in a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfire: Option<MisfirePolicy>,
}

impl TopicPolicy {
    /// The share of the quota that one of `shards` lanes has.
    pub fn quota_of_lane(&self, shards: u16) -> Option<u64> {
        self.quota.map(|quota| quota.div_ceil(u64::from(shards.max(1))))
    }
}
