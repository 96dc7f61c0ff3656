//! What a response means. Pure: the caller passes the response, the rules and the time.
//!
//! | response | [`Answer`] | fault |
//! |---|---|---|
//! | 2xx, unless the rule finds a `dm_error` in it | `Delivered` | |
//! | the same with 202 and `delay-ack: later` | `Accepted` | |
//! | other, with a final status or `delay-no-retry: true` | `Final` | |
//! | 2xx with a `dm_error` other than 0 | `Failed` | the task's |
//! | 5xx, 429 | `Failed` | the destination's |
//! | 2xx, cut off before a `dm_error` could be ruled out | `Failed` | the destination's |
//! | none | `Failed` | the destination's, or this instance's |
//! | other: 3xx (never followed), 4xx | `Failed` | the task's |

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::trouble::Trouble;
use crate::model::clock::UnixMillis;
use delayd_wire::Span;

/// The maximum of `callback.retry_after_max`.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The shortest lease for an acknowledgement.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Which responses are a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuccessRule {
    /// 2xx, unless the answer is a JSON object whose top-level `dm_error` is a number other than 0.
    #[default]
    DmError,
    /// 2xx.
    Status,
}

/// The result of a call. Outcomes are short texts such as `200 OK`, without payload or URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The business has processed the task.
    Delivered {
        /// For example `200 OK`.
        outcome: String,
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
    /// The business does not want a retry.
    Final {
        /// For example `410 Gone`.
        outcome: String,
    },
}

impl Answer {
    /// The same answer, with a `Retry-After` of at most `most`.
    pub fn with_retry_after_of_at_most(mut self, most: Duration) -> Self {
        if let Self::Failed { retry_after, hold, .. } = &mut self {
            for wait in [retry_after, hold] {
                *wait = wait.map(|wait| wait.min(most)).filter(|wait| !wait.is_zero());
            }
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
            Self::Delivered { outcome }
            | Self::Failed { outcome, .. }
            | Self::Final { outcome } => outcome,
            Self::Accepted { .. } => "202 Accepted, to be acknowledged",
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
}

/// The rules that a response is judged by.
pub(super) struct Rules<'a> {
    pub(super) success: SuccessRule,
    pub(super) final_statuses: &'a [u16],
    pub(super) now: UnixMillis,
}

/// Judges a response.
pub(super) fn replied(reply: &Reply<'_>, rules: &Rules<'_>) -> Answer {
    let header = |name: &str| reply.headers.get(name).and_then(|value| value.to_str().ok());
    let Some((outcome, fault)) = failure(reply, rules.success) else {
        let is_later =
            header("delay-ack").is_some_and(|value| value.trim().eq_ignore_ascii_case("later"));
        return match reply.status {
            StatusCode::ACCEPTED if is_later => {
                Answer::Accepted { lease: header("delay-lease").and_then(read_lease) }
            }
            status => Answer::Delivered { outcome: status_text(status) },
        };
    };
    let says_no_retry =
        header("delay-no-retry").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if says_no_retry || rules.final_statuses.contains(&reply.status.as_u16()) {
        return Answer::Final { outcome };
    }
    let retry_after = header("retry-after").and_then(|text| read_retry_after(text, rules.now));
    Answer::Failed {
        outcome,
        retry_after,
        hold: retry_after.filter(|_| is_busy(reply.status)),
        fault,
    }
}

/// Why the response is not a success, and whose fault that is; `None` if it is one.
fn failure(reply: &Reply<'_>, success: SuccessRule) -> Option<(String, Fault)> {
    let status = status_text(reply.status);
    if !reply.status.is_success() {
        let is_in_trouble = is_busy(reply.status) || reply.status.is_server_error();
        return Some((status, if is_in_trouble { Fault::Destination } else { Fault::Task }));
    }
    match (success, reply.broken) {
        (SuccessRule::Status, _) => None,
        (SuccessRule::DmError, Some(trouble)) => {
            Some((format!("{status}, but the answer broke off: {trouble}"), Fault::Destination))
        }
        (SuccessRule::DmError, None) => {
            dm_error(reply.body).map(|code| (format!("{status}, dm_error {code}"), Fault::Task))
        }
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

/// The top-level `dm_error`, if it is a number other than 0. In a body that is cut off or invalid,
/// a `dm_error` before that point counts, so that a failure does not pass for a success.
fn dm_error(body: &[u8]) -> Option<serde_json::Number> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let mut found = None;
    // The error is the point where the JSON ends.
    let _ = serde_json::Deserializer::from_slice(body).deserialize_map(Envelope(&mut found));
    match found {
        Some(serde_json::Value::Number(code)) if code.as_f64() != Some(0.0) => Some(code),
        _ => None,
    }
}

/// Reads an object and keeps its `dm_error`; the last one if there are several.
struct Envelope<'a>(&'a mut Option<serde_json::Value>);

impl<'de> Visitor<'de> for Envelope<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "dm_error" {
                *self.0 = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// `delay-lease`: seconds, or a number with a unit. An unreadable one is ignored. The store limits
/// long ones.
fn read_lease(text: &str) -> Option<Duration> {
    let text = text.trim();
    let span = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => text.parse::<Span>().ok()?.0,
    };
    Some(span.max(SHORTEST_LEASE))
}

/// `Retry-After` in its two forms. One in the past, or an unreadable one, is ignored.
fn read_retry_after(text: &str, now: UnixMillis) -> Option<Duration> {
    let text = text.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number with too many digits is a very long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        let millis = date.duration_since(UNIX_EPOCH).ok()?.as_millis();
        UnixMillis(i64::try_from(millis).ok()?).since(now)
    };
    Some(wait.min(LONGEST_RETRY_AFTER)).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT

    fn judge(
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &str,
        success: SuccessRule,
    ) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &headers,
            body: body.as_bytes(),
            broken: None,
        };
        replied(&reply, &Rules { success, final_statuses: &[410], now: NOW })
    }

    fn failed(outcome: &str, fault: Fault) -> Answer {
        Answer::Failed { outcome: outcome.into(), retry_after: None, hold: None, fault }
    }

    fn delivered(outcome: &str) -> Answer {
        Answer::Delivered { outcome: outcome.into() }
    }

    #[test]
    fn the_status_decides_unless_a_dm_error_does() {
        let check = |status: u16, body: &str, expected: Answer| {
            assert_eq!(judge(status, &[], body, SuccessRule::DmError), expected, "{status} {body}");
        };
        check(200, "", delivered("200 OK"));
        check(204, "", delivered("204 No Content"));
        check(202, "done", delivered("202 Accepted"));
        check(299, "", delivered("299"));
        check(200, r#"{"dm_error":0}"#, delivered("200 OK"));
        check(200, r#"{"dm_error":-0.0}"#, delivered("200 OK"));
        check(200, r#"{"dm_error":"7"}"#, delivered("200 OK"));
        check(200, r#"{"dm_error":null}"#, delivered("200 OK"));
        check(200, r#"{"data":{"dm_error":7}}"#, delivered("200 OK"));
        check(200, "[7]", delivered("200 OK"));
        check(200, r#"{"dm_error":7"#, failed("200 OK, dm_error 7", Fault::Task));
        check(200, r#"{"dm_error":7,"data":"cut of"#, failed("200 OK, dm_error 7", Fault::Task));
        check(200, r#"{"data":"cut of"#, delivered("200 OK"));
        check(200, r#"{"dm_error":7,"dm_error":7}"#, failed("200 OK, dm_error 7", Fault::Task));
        check(200, "\u{feff}{\"dm_error\":7}", failed("200 OK, dm_error 7", Fault::Task));
        check(
            200,
            r#" {"error_msg":"no","dm_error":7} "#,
            failed("200 OK, dm_error 7", Fault::Task),
        );
        check(200, r#"{"dm_error":-1}"#, failed("200 OK, dm_error -1", Fault::Task));
        check(200, r#"{"dm_error":0.5}"#, failed("200 OK, dm_error 0.5", Fault::Task));
        check(301, "", failed("301 Moved Permanently", Fault::Task));
        check(404, "", failed("404 Not Found", Fault::Task));
        check(408, "", failed("408 Request Timeout", Fault::Task));
        check(429, "", failed("429 Too Many Requests", Fault::Destination));
        check(500, r#"{"dm_error":0}"#, failed("500 Internal Server Error", Fault::Destination));
        check(599, "", failed("599", Fault::Destination));
        check(410, "", Answer::Final { outcome: "410 Gone".into() });
    }

    #[test]
    fn the_status_rule_does_not_look_at_the_answer() {
        assert_eq!(judge(200, &[], r#"{"dm_error":7}"#, SuccessRule::Status), delivered("200 OK"));
    }

    #[test]
    fn a_202_may_say_that_the_acknowledgement_follows() {
        let later =
            |lease: Option<u64>| Answer::Accepted { lease: lease.map(Duration::from_millis) };
        let check = |status: u16,
                     headers: &[(&'static str, &'static str)],
                     body: &str,
                     expected: Answer| {
            assert_eq!(
                judge(status, headers, body, SuccessRule::DmError),
                expected,
                "{status} {headers:?} {body}"
            );
        };
        let ack = ("delay-ack", "later");
        check(202, &[ack], "", later(None));
        check(202, &[("delay-ack", " Later ")], r#"{"dm_error":0}"#, later(None));
        check(202, &[ack, ("delay-lease", "90")], "", later(Some(90_000)));
        check(202, &[ack, ("delay-lease", "5m")], "", later(Some(300_000)));
        check(202, &[ack, ("delay-lease", "0")], "", later(Some(1_000)));
        check(202, &[ack, ("delay-lease", "99999h")], "", later(Some(99_999 * 3_600_000)));
        check(202, &[ack, ("delay-lease", "soon")], "", later(None));
        check(202, &[("delay-ack", "now")], "", delivered("202 Accepted"));
        check(202, &[("delay-lease", "5m")], "", delivered("202 Accepted"));
        check(200, &[ack], "", delivered("200 OK"));
        check(202, &[ack], r#"{"dm_error":7}"#, failed("202 Accepted, dm_error 7", Fault::Task));
        check(503, &[ack], "", failed("503 Service Unavailable", Fault::Destination));
    }

    #[test]
    fn delay_no_retry_is_final_whatever_the_failure() {
        let check = |status: u16, value: &'static str, is_final: bool| {
            let answer = judge(
                status,
                &[("delay-no-retry", value)],
                r#"{"dm_error":7}"#,
                SuccessRule::DmError,
            );
            assert_eq!(matches!(answer, Answer::Final { .. }), is_final, "{status} {value}");
        };
        check(500, "true", true);
        check(400, "true", true);
        check(200, "true", true);
        check(500, "false", false);
        check(500, "", false);
        // Some services always send it, because they never want a retry.
        assert_eq!(
            judge(200, &[("delay-no-retry", "true")], "", SuccessRule::DmError),
            delivered("200 OK")
        );
    }

    #[test]
    fn retry_after_puts_off_the_task_and_on_429_and_503_the_destination() {
        let check =
            |status: u16, value: &'static str, task: Option<u64>, destination: Option<u64>| {
                let answer = judge(status, &[("retry-after", value)], "", SuccessRule::DmError);
                let Answer::Failed { retry_after, hold, .. } = answer else { panic!("{answer:?}") };
                let seconds = |wait: Option<Duration>| wait.map(|wait| wait.as_secs());
                assert_eq!(
                    (seconds(retry_after), seconds(hold)),
                    (task, destination),
                    "{status} {value}"
                );
            };
        check(503, "120", Some(120), Some(120));
        check(429, "1", Some(1), Some(1));
        check(500, "120", Some(120), None);
        check(404, "120", Some(120), None);
        check(503, "Sun, 06 Nov 1994 08:51:37 GMT", Some(120), Some(120));
        check(503, "Sun, 06 Nov 1994 08:49:00 GMT", None, None);
        check(503, "86401", Some(86_400), Some(86_400));
        check(503, "99999999999999999999999", Some(86_400), Some(86_400));
        check(503, "0", None, None);
        check(503, "-1", None, None);
        check(503, "1.5", None, None);
        check(503, "soon", None, None);
        check(503, "", None, None);
    }

    #[test]
    fn a_broken_answer_counts_by_its_status_unless_the_rule_needed_the_rest() {
        let check = |status: u16, success: SuccessRule, expected: Answer| {
            let status = StatusCode::from_u16(status).unwrap();
            let reply = Reply {
                status,
                headers: &HeaderMap::new(),
                body: b"{\"dm_",
                broken: Some(Trouble::Reset),
            };
            assert_eq!(
                replied(&reply, &Rules { success, final_statuses: &[410], now: NOW }),
                expected
            );
        };
        let broken =
            failed("200 OK, but the answer broke off: connection reset", Fault::Destination);
        check(200, SuccessRule::DmError, broken);
        check(200, SuccessRule::Status, delivered("200 OK"));
        check(404, SuccessRule::DmError, failed("404 Not Found", Fault::Task));
        check(410, SuccessRule::DmError, Answer::Final { outcome: "410 Gone".into() });
    }

    #[test]
    fn no_answer_is_the_destinations_fault_unless_it_is_ours() {
        let check = |trouble: Trouble, expected: Answer| assert_eq!(unanswered(trouble), expected);
        check(
            Trouble::TimedOut(Duration::from_secs(15)),
            failed("timed out after 15s", Fault::Destination),
        );
        check(
            Trouble::ConnectTimedOut(Duration::from_secs(2)),
            failed("no connection within 2s", Fault::Destination),
        );
        check(Trouble::Refused, failed("connection refused", Fault::Destination));
        check(Trouble::TooManyFiles, failed("too many open files in delayd", Fault::Here));
    }
}
