//! A topic's settings as they are shown: field by field as `/delay/topic/set` takes them, so that what was read can be edited and set again.

use serde::Serialize;
use utoipa::ToSchema;

use crate::rate::Rate;
use crate::retry::Backoff;
use crate::span::Span;
use crate::task::{MisfirePolicy, Mode, TopicPolicy};

/// What is set; the rest follows the configuration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TopicPolicy)]
pub(crate) struct ShownPolicy {
    /// How failed tasks are tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<ShownRetry>,
    /// Of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// What `auto` means here.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    /// The most calls in a time, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    /// The most calls at a time, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<usize>,
    /// The most waiting and leased tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<u64>,
    /// How long, and how many, ended tasks can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<ShownHistory>,
    /// What becomes of tasks that fell due in a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    misfire: Option<MisfirePolicy>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TopicRetry)]
struct ShownRetry {
    /// Calls before a task is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    /// Answers that end a task at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    final_statuses: Option<Vec<u16>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TopicHistory)]
struct ShownHistory {
    /// How long.
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<Span>,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
}

impl ShownPolicy {
    pub(crate) fn of(policy: &TopicPolicy) -> Self {
        let TopicPolicy {
            max_attempts,
            backoff,
            final_statuses,
            timeout,
            mode,
            rate,
            concurrency,
            quota,
            history_keep: keep,
            history_max: max,
            misfire,
        } = policy.clone();
        let has_retry = max_attempts.is_some() || backoff.is_some() || final_statuses.is_some();
        let has_history = keep.is_some() || max.is_some();
        Self {
            retry: has_retry.then_some(ShownRetry { max_attempts, backoff, final_statuses }),
            timeout,
            mode,
            rate,
            concurrency,
            quota,
            history: has_history.then_some(ShownHistory { keep, max }),
            misfire,
        }
    }
}
