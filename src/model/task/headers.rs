//! The headers that a task adds to its callback.

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::model::trace::{TRACEPARENT, TraceContext};

/// The maximum number of headers of a task.
const MOST: usize = 32;
/// The maximum length of all names and values, in bytes.
const MOST_BYTES: usize = 8 * 1024;

/// Names that would change the meaning of the call. `accept-encoding`: delayd asks for answers that
/// are not compressed, because it cannot read every compression. `expect`: delayd does not wait for
/// 100 Continue.
const REFUSED: [&str; 13] = [
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
    "accept-encoding",
    "proxy",
];
/// Forbidden prefixes of names.
const REFUSED_PREFIXES: [&str; 3] = ["proxy-", "webhook-", "delay-"];

/// Names in lower case, and values. Stored as a JSON object.
///
/// `Debug` shows only the names: a value may be a password.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

/// The error for headers that cannot be sent. It names the header and the rule, but no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidHeaders(String);

impl Headers {
    /// Checks the headers.
    ///
    /// # Errors
    /// See [`InvalidHeaders`].
    pub fn new(given: impl IntoIterator<Item = (String, String)>) -> Result<Self, InvalidHeaders> {
        let (mut headers, mut bytes) = (BTreeMap::new(), 0);
        for (name, value) in given {
            bytes += name.len() + value.len();
            if headers.len() == MOST || bytes > MOST_BYTES {
                return Err(InvalidHeaders(format!(
                    "must be at most {MOST}, of {MOST_BYTES} bytes together"
                )));
            }
            let name = check(&name, &value)?;
            if headers.insert(name.clone(), value).is_some() {
                return Err(InvalidHeaders(format!("{name:?} is given more than once")));
            }
        }
        Ok(Self(headers))
    }

    /// The number of headers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, in lower case.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The trace context that the callback gets by these headers, if they hold a valid one.
    pub fn trace(&self) -> Option<TraceContext> {
        self.0.get(TRACEPARENT.as_str())?.parse().ok()
    }

    /// Inserts the headers into `head`, replacing those of the same name. Leaves out those whose
    /// name is `refused`.
    pub fn put_into(&self, head: &mut HeaderMap, refused: impl Fn(&str) -> bool) {
        for (name, value) in &self.0 {
            // They were checked when the task was added. An invalid one is not sent.
            if check(name, value).is_ok()
                && !refused(name)
                && let (Ok(name), Ok(mut value)) =
                    (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                // `Debug` of a request then hides the value.
                value.set_sensitive(true);
                head.insert(name, value);
            }
        }
    }
}

/// Whether only delayd may set the header of this name, which is in lower case, or one that a
/// receiver may take for it ([`is_same_header`]).
pub fn is_reserved_header(name: &str) -> bool {
    let begins_with = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|beginning| is_same_header(beginning, prefix))
    };
    REFUSED.iter().any(|refused| is_same_header(name, refused))
        || REFUSED_PREFIXES.iter().any(|prefix| begins_with(prefix))
}

/// Whether a receiver may take the headers of these names, in lower case, for the same one. CGI and
/// WSGI turn both `webhook-id` and `webhook_id` into the variable `HTTP_WEBHOOK_ID`, and some
/// servers do so for any character that is neither a letter nor a digit.
pub fn is_same_header(one: &str, other: &str) -> bool {
    let is_same = |(one, other): (u8, u8)| {
        one == other || !one.is_ascii_alphanumeric() && !other.is_ascii_alphanumeric()
    };
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(is_same)
}

/// Returns the name in lower case, if the header may be sent.
fn check(name: &str, value: &str) -> Result<String, InvalidHeaders> {
    let shown = || name.chars().take(64).collect::<String>();
    let Ok(known) = HeaderName::try_from(name) else {
        return Err(InvalidHeaders(format!("{:?} is not a valid header name", shown())));
    };
    let known = known.as_str();
    if is_reserved_header(known) {
        return Err(InvalidHeaders(format!(
            "{:?} is delayd's own business and cannot be given",
            shown()
        )));
    }
    if HeaderValue::try_from(value).is_err()
        || !value.bytes().all(|byte| byte == b'\t' || (32..127).contains(&byte))
    {
        return Err(InvalidHeaders(format!(
            "the value of {:?} must be one line of visible ASCII",
            shown()
        )));
    }
    Ok(known.to_owned())
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Headers, String> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Headers::new(owned).map_err(|error| error.to_string())
    }

    #[test]
    fn headers_that_change_the_call_are_refused_in_any_case() {
        let check =
            |name: &str, right: bool| assert_eq!(read(&[(name, "x")]).is_ok(), right, "{name}");
        check("x-tenant", true);
        check("Authorization", true);
        check("content-type", true);
        check("User-Agent", true);
        check("traceparent", true);
        check("delayed", true);
        for name in REFUSED {
            check(name, false);
            check(&name.to_uppercase(), false);
        }
        check("Proxy-Authorization", false);
        check("Webhook-Id", false);
        check("webhook-signature", false);
        check("DELAY-task-id", false);
        // A receiver behind CGI or WSGI reads these as the headers of delayd.
        check("webhook_id", false);
        check("Webhook_Signature", false);
        check("webhook.timestamp", false);
        check("delay_task_id", false);
        check("delay_receipt", false);
        check("content_length", false);
        check("proxy_authorization", false);
        check("x_webhook_id", true);
        check("delay", true);
        check("", false);
        check(":authority", false);
        check("a b", false);
        check("a\r\nhost", false);
        check("订单", false);
    }

    #[test]
    fn a_value_is_one_line_and_is_not_repeated() {
        let check = |value: &str, right: bool| {
            let said = read(&[("x-a", value)]);
            assert_eq!(said.is_ok(), right, "{value:?}");
            assert!(!said.err().unwrap_or_default().contains("secret"));
        };
        check("", true);
        check("Bearer secret", true);
        check("a\tb", true);
        check("secret\r\nhost: evil", false);
        check("secret\n", false);
        check("secret\0", false);
        check("secret\u{7f}", false);
        check("secret 订单", false);
    }

    #[test]
    fn their_number_and_bytes_are_bounded() {
        let many = |count: usize| (0..count).map(|n| (format!("x-{n}"), "v".to_owned()));
        assert!(Headers::new(many(32)).is_ok() && Headers::new(many(33)).is_err());
        assert!(
            read(&[("x", &"v".repeat(8191))]).is_ok() && read(&[("x", &"v".repeat(8192))]).is_err()
        );
        assert!(read(&[("x-a", "1"), ("X-A", "2")]).unwrap_err().contains("more than once"));
    }

    #[test]
    fn they_are_stored_as_a_plain_object_and_debug_shows_no_value() {
        let headers = read(&[("X-B", "secret"), ("x-a", "1")]).unwrap();
        let stored = serde_json::to_string(&headers).unwrap();
        assert_eq!(stored, r#"{"x-a":"1","x-b":"secret"}"#);
        assert_eq!(serde_json::from_str::<Headers>(&stored).unwrap(), headers);
        assert_eq!(format!("{headers:?}"), r#"{"x-a", "x-b"}"#);
    }

    #[test]
    fn what_was_never_checked_is_not_sent() {
        let stored: Headers = serde_json::from_str(
            r#"{"host":"evil","x-a":"a\r\nb","x-b":"1","x-c":"2","webhook_id":"3"}"#,
        )
        .unwrap();
        let mut head = HeaderMap::new();
        stored.put_into(&mut head, |name| name == "x-c");
        assert_eq!(head.keys().collect::<Vec<_>>(), ["x-b"]);
        assert_eq!(format!("{head:?}"), r#"{"x-b": Sensitive}"#);
    }

    proptest! {
        #[test]
        fn whatever_passes_is_one_header(
            name in ".{0,20}",
            value in "\\PC{0,20}|[\\x00-\\xff]{0,20}",
        ) {
            if let Ok(headers) = Headers::new([(name, value.clone())]) {
                let mut head = HeaderMap::new();
                headers.put_into(&mut head, |_| false);
                prop_assert_eq!(head.len(), 1);
                prop_assert_eq!(head.values().next().unwrap().as_bytes(), value.as_bytes());
            }
        }
    }
}
