//! `[trace]`: where spans are exported to, and which.

use std::fmt;
use std::str::FromStr;

use delayd_wire::Span;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::check::{Wrong, ensure, within, within_spans};
use super::services::BaseUrl;
use super::value::{Parsed, unless_empty};
use crate::trace;

/// The maximum number of headers of an export.
const MOST_HEADERS: usize = 16;

/// The section `[trace]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The base address of the collector; an empty text means none.
    #[serde(deserialize_with = "unless_empty")]
    pub endpoint: Option<BaseUrl>,
    /// Further headers of each export.
    pub headers: Vec<Parsed<TraceHeader>>,
    /// The timeout of an export, 100 ms to 60 s.
    pub timeout: Span,
    /// The share of adds without a caller's context that are exported, 0 to 1.
    pub sample_ratio: f64,
    /// Attempts of tasks with a shorter delay continue the trace of the add; up to a day.
    pub continue_below: Span,
}

/// A header of each export.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceHeader {
    /// Its name.
    pub name: String,
    /// Its value, which may be a password.
    pub value: String,
}

/// The error for a text that is not a header. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a header, such as \"authorization: Bearer …\", of visible ASCII")]
pub struct InvalidTraceHeader;

impl FromStr for TraceHeader {
    type Err = InvalidTraceHeader;

    fn from_str(text: &str) -> Result<Self, InvalidTraceHeader> {
        let (name, value) = text.split_once(':').ok_or(InvalidTraceHeader)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| InvalidTraceHeader)?;
        let is_visible = |byte| (32..127).contains(&byte);
        let value = value.trim();
        if HeaderValue::try_from(value).is_err() || !value.bytes().all(is_visible) {
            return Err(InvalidTraceHeader);
        }
        Ok(Self { name: name.as_str().to_owned(), value: value.to_owned() })
    }
}

impl fmt::Debug for TraceHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceHeader({}: ***)", self.name)
    }
}

impl Trace {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.check_for(trace::IS_BUILT)
    }

    fn check_for(&self, can_export: bool) -> Result<(), Wrong> {
        ensure("trace.endpoint", self.endpoint.is_none() || can_export, || {
            "must be empty: this program was built without the feature \"otlp\"; `scripts/dist` \
             and `cargo build --features otlp` build it with"
                .into()
        })?;
        ensure("trace.headers", self.headers.len() <= MOST_HEADERS, || {
            format!("must hold at most {MOST_HEADERS}")
        })?;
        within_spans("trace.timeout", self.timeout, "100ms", "60s")?;
        within("trace.sample_ratio", self.sample_ratio, 0.0..=1.0)?;
        within_spans("trace.continue_below", self.continue_below, "0s", "24h")
    }

    /// A description of what is exported, for people.
    pub fn summary(&self) -> String {
        match &self.endpoint {
            None => "not exported".into(),
            Some(endpoint) => format!(
                "exported to {endpoint}, {} of the adds without a caller's trace",
                self.sample_ratio
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, tests::load};
    use super::*;

    fn read(toml: &str) -> Result<Settings, String> {
        load(&format!("[trace]\n{toml}"), &[], &[])
    }

    #[test]
    fn a_program_without_the_feature_refuses_an_endpoint() {
        let with = read("endpoint = 'http://127.0.0.1:4318/'").unwrap().trace;
        assert_eq!(with.endpoint.as_ref().map(BaseUrl::as_str), Some("http://127.0.0.1:4318"));
        assert!(with.check_for(true).is_ok());
        let wrong = with.check_for(false).unwrap_err();
        assert_eq!(wrong.path, ["trace", "endpoint"]);
        assert!(wrong.reason.contains("without the feature \"otlp\""), "{}", wrong.reason);
        let without = read("").unwrap().trace;
        assert!(without.endpoint.is_none() && without.check_for(false).is_ok());
    }

    #[test]
    fn a_header_is_a_secret() {
        let settings = read("headers = ['Authorization:  Bearer secret ', 'x-a:secret']").unwrap();
        let headers = &settings.trace.headers;
        assert_eq!(headers[0].0.name, "authorization");
        assert_eq!(headers[0].0.value, "Bearer secret");
        assert!(!format!("{settings:?}").contains("secret"), "{settings:?}");
        for wrong in ["['secret']", "['a b: secret']", "[\"a: secret\\nsecret\"]", "'a: secret'"] {
            let error = read(&format!("headers = {wrong}")).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let env = [("DELAYD__TRACE__HEADERS", "a: 1, b: 2")];
        assert_eq!(load("", &[], &env).unwrap().trace.headers.len(), 2);
    }
}
