//! What one task asks for instead of its topic's policy.

use serde::{Deserialize, Serialize};

use super::Headers;
use crate::retry::Backoff;
use crate::span::Span;

/// A task's own settings; what is absent follows the policy. Stored with the task as compact JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Calls before the task dies, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// How long one call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Headers of its own, for its callback.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
}

impl Options {
    /// Whether nothing is asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
