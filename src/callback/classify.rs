//! What a response means. Pure: the caller passes the response, the rules and the time.
//!
//! | response | [`Answer`] | fault |
//! |---|---|---|
//! | a success by the [`SuccessRule`] | `Delivered` | |
//! | the same with 202 and `delay-ack: later` | `Accepted` | |
//! | other, with a final status or `delay-no-retry: true` | `Final` | |
//! | a status of the rule, with a body that it does not take | `Failed` | the task's |
//! | a status of the rule, with a body that it looks at and cannot read | `Failed` | the task's |
//! | a status of the rule, with a body that broke off | `Failed` | the destination's |
//! | 5xx, 429 | `Failed` | the destination's |
//! | none | `Failed` | the destination's, or this instance's |
//! | other: 3xx (never followed), 4xx, 2xx that the rule does not list | `Failed` | the task's |

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};

use super::known_secrets::KnownSecrets;
use super::success::{AnswerRule, Envelope, SuccessRule};
use super::trouble::Trouble;
use crate::model::clock::UnixMillis;
use delayd_wire::span::lease_of;

/// The maximum of `callback.retry_after_max`.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The end of an outcome.
const UNREADABLE: &str = ", but the answer is compressed and cannot be read";

/// The shortest lease for an acknowledgement.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The result of a call. Outcomes are short texts such as `200 OK`, without payload or URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The business has processed the task.
    Delivered {
        /// For example `200 OK`.
        outcome: String,
        /// A field of the answer that usually says that a call failed, though the rule does not
        /// look at it.
        ambiguous: Option<&'static str>,
    },
    /// The business has the task, and acknowledges it later.
    Accepted {
        /// How long that may take, if the response says so: at least a second.
        lease: Option<Duration>,
    },
    /// The call failed, and may be retried.
    Failed {
        /// For example `503 Service Unavailable` or `timed out after 15s`.
        outcome: String,
        /// The response's `Retry-After`, at most [`LONGEST_RETRY_AFTER`]. The task is not retried
        /// earlier.
        retry_after: Option<Duration>,
        /// The same, if it applies to the whole destination (429 and 503). No task is called there
        /// earlier.
        hold: Option<Duration>,
        /// Whose fault it is.
        fault: Fault,
    },
    /// The call was not made, or refused, because there is no OAuth access token.
    NoToken,
    /// The business does not want a retry.
    Final {
        /// For example `410 Gone`.
        outcome: String,
    },
}

impl Answer {
    /// A success that is not ambiguous.
    pub fn delivered(outcome: impl Into<String>) -> Self {
        Self::Delivered { outcome: outcome.into(), ambiguous: None }
    }

    /// The same answer, with a `Retry-After` of at most `most`.
    pub fn with_retry_after_of_at_most(mut self, most: Duration) -> Self {
        if let Self::Failed { retry_after, hold, .. } = &mut self {
            for wait in [retry_after, hold] {
                *wait = wait.map(|wait| wait.min(most)).filter(|wait| !wait.is_zero());
            }
        }
        self
    }

    /// The same answer, without secrets in its outcome.
    pub(super) fn redacted(mut self, known: &KnownSecrets) -> Self {
        if let Self::Delivered { outcome, .. }
        | Self::Failed { outcome, .. }
        | Self::Final { outcome } = &mut self
        {
            *outcome = known.redact(outcome).into_owned();
        }
        self
    }

    /// Whether the task was not taken.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Final { .. })
    }

    /// The outcome, as a short text.
    pub fn outcome(&self) -> &str {
        match self {
            Self::Delivered { outcome, .. }
            | Self::Failed { outcome, .. }
            | Self::Final { outcome } => outcome,
            Self::Accepted { .. } => "202 Accepted, to be acknowledged",
            Self::NoToken => "not called: no OAuth access token",
        }
    }
}

/// Whose fault a failure is. A breaker counts only those of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The destination's: no connection, a timeout, 5xx, 429.
    Destination,
    /// The task's: the destination is healthy and rejected it.
    Task,
    /// This instance's: nothing was sent, so it says nothing about the destination.
    Here,
}

/// An HTTP response.
pub(super) struct Reply<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// The part of the body that was read.
    pub(super) body: &'a [u8],
    /// Why the body ended early, unless our own limit cut it.
    pub(super) broken: Option<Trouble>,
    /// Whether our own limit cut it.
    pub(super) is_cut: bool,
    /// Whether `body` is only a part, because the rest is compressed and cannot be decoded.
    pub(super) is_unreadable: bool,
}

/// The rules that a response is judged by.
pub(super) struct AnswerRules<'a> {
    pub(super) success: &'a SuccessRule,
    pub(super) final_statuses: &'a [u16],
    pub(super) now: UnixMillis,
}

/// Whether a response is a success.
enum ResponseVerdict {
    Success {
        /// As in [`Answer::Delivered`].
        ambiguous: Option<&'static str>,
    },
    Failure {
        outcome: String,
        fault: Fault,
    },
}

/// Judges a response.
pub(super) fn replied(reply: &Reply<'_>, rules: &AnswerRules<'_>) -> Answer {
    let header = |name: &str| reply.headers.get(name).and_then(|value| value.to_str().ok());
    let is_later = reply.status == StatusCode::ACCEPTED
        && header("delay-ack").is_some_and(|value| value.trim().eq_ignore_ascii_case("later"));
    let (outcome, fault) = match verdict(reply, rules.success, is_later) {
        ResponseVerdict::Success { .. } if is_later => {
            return Answer::Accepted { lease: header("delay-lease").and_then(read_lease) };
        }
        ResponseVerdict::Success { ambiguous } => {
            return Answer::Delivered { outcome: status_text(reply.status), ambiguous };
        }
        ResponseVerdict::Failure { outcome, fault } => (outcome, fault),
    };
    let says_no_retry =
        header("delay-no-retry").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if says_no_retry || rules.final_statuses.contains(&reply.status.as_u16()) {
        return Answer::Final { outcome };
    }
    // The clock of the server that wrote the date may be another one than ours.
    let now = header("date").and_then(read_date).unwrap_or(rules.now);
    let retry_after = header("retry-after").and_then(|text| read_retry_after(text, now));
    Answer::Failed {
        outcome,
        retry_after,
        hold: retry_after.filter(|_| is_busy(reply.status)),
        fault,
    }
}

/// Judges a response by the rule. `is_later`: its receiver acknowledges the task later, so a value
/// that the rule looks for may be missing.
fn verdict(reply: &Reply<'_>, rule: &SuccessRule, is_later: bool) -> ResponseVerdict {
    let status = status_text(reply.status);
    if !rule.takes(reply.status) {
        if reply.status.is_success() {
            let outcome = format!("{status}, which is not among the statuses of success");
            return ResponseVerdict::Failure { outcome, fault: Fault::Task };
        }
        let is_in_trouble = is_busy(reply.status) || reply.status.is_server_error();
        let fault = if is_in_trouble { Fault::Destination } else { Fault::Task };
        return ResponseVerdict::Failure { outcome: status, fault };
    }
    if let Some(trouble) = reply.broken {
        let outcome = format!("{status}, but the answer broke off: {trouble}");
        return ResponseVerdict::Failure { outcome, fault: Fault::Destination };
    }
    let value = match rule {
        SuccessRule::DmError => None,
        SuccessRule::Answer(AnswerRule { value: Some(value), .. }) => Some(value),
        SuccessRule::Answer(_) | SuccessRule::Status => {
            return ResponseVerdict::Success { ambiguous: None };
        }
    };
    let Some(value) = value else {
        let envelope = Envelope::read(reply.body);
        return match envelope.error() {
            Some(code) => {
                let outcome = format!("{status}, dm_error {code}");
                ResponseVerdict::Failure { outcome, fault: Fault::Task }
            }
            // It may hold a `dm_error`. A repeated call does less harm than a lost task.
            None if reply.is_unreadable && !is_later => ResponseVerdict::Failure {
                outcome: format!("{status}{UNREADABLE}"),
                fault: Fault::Task,
            },
            None => ResponseVerdict::Success { ambiguous: envelope.ambiguity() },
        };
    };
    if reply.is_unreadable {
        return match is_later || value.missing_is_success {
            true => ResponseVerdict::Success { ambiguous: None },
            false => ResponseVerdict::Failure {
                outcome: format!("{status}{UNREADABLE}"),
                fault: Fault::Task,
            },
        };
    }
    match value.failure(reply.body, reply.is_cut, is_later) {
        Some(why) => {
            ResponseVerdict::Failure { outcome: format!("{status}{why}"), fault: Fault::Task }
        }
        None => ResponseVerdict::Success { ambiguous: None },
    }
}

/// Whether a `Retry-After` with this status applies to the whole destination.
fn is_busy(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

/// Judges a call without a response.
pub(super) fn unanswered(trouble: Trouble) -> Answer {
    let is_ours = matches!(trouble, Trouble::TooManyFiles | Trouble::Denied);
    let fault = if is_ours { Fault::Here } else { Fault::Destination };
    Answer::Failed { outcome: trouble.to_string(), retry_after: None, hold: None, fault }
}

/// For example `404 Not Found`; only the number for a status without a name.
fn status_text(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// `delay-lease`: seconds, or a number with a unit. An unreadable one is ignored. So is a number
/// without a unit above an hour, which may be meant as milliseconds. The store limits long ones.
fn read_lease(text: &str) -> Option<Duration> {
    Some(lease_of(text.trim()).ok()?.0.max(SHORTEST_LEASE))
}

/// `Retry-After` in its two forms, and with a fraction of a second, which some servers send. One in
/// the past, or an unreadable one, is ignored.
fn read_retry_after(text: &str, now: UnixMillis) -> Option<Duration> {
    let text = text.trim();
    let are_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let wait = if are_digits(whole) && are_digits(fraction) {
        // A number with too many digits is a very long time.
        let seconds: u64 = whole.parse().unwrap_or(u64::MAX);
        // Rounded up, so that the task is not called too early.
        let is_whole = fraction.bytes().all(|digit| digit == b'0');
        Duration::from_secs(seconds.saturating_add(u64::from(!is_whole)))
    } else {
        read_date(text)?.since(now)
    };
    Some(wait.min(LONGEST_RETRY_AFTER)).filter(|wait| !wait.is_zero())
}

/// A date as HTTP writes it.
fn read_date(text: &str) -> Option<UnixMillis> {
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    let millis = date.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(UnixMillis(i64::try_from(millis).ok()?))
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
