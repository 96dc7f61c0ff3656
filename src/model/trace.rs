//! Trace contexts as W3C Trace Context writes them: the header `traceparent`.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::task::{StoreId, TaskId};

/// The header with a trace context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// A span of a trace, and whether the trace is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace, not 0.
    pub trace: u128,
    /// The span in it, not 0.
    pub span: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

/// The error for a text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a traceparent, such as 00-<32 hexadecimal digits>-<16 hexadecimal digits>-01")]
pub struct InvalidTraceContext;

impl TraceContext {
    /// The root span of a new trace.
    pub fn random(is_sampled: bool) -> Self {
        Self::of(rand::random(), rand::random(), is_sampled)
    }

    /// Another span of the same trace.
    pub fn sibling(self) -> Self {
        Self::of(self.trace, rand::random(), self.is_sampled)
    }

    /// The span of the add of a task whose caller sent no context. It is derived from the names of
    /// store and task. So the attempts can name it, although the task does not store it.
    pub fn of_add(store: StoreId, task: TaskId, is_sampled: impl FnOnce(u128) -> bool) -> Self {
        let digest = Sha256::new()
            .chain_update(b"delayd add")
            .chain_update(store.0.to_be_bytes())
            .chain_update(task.0.to_be_bytes())
            .finalize();
        let (trace, rest) = digest.split_first_chunk::<16>().expect("a digest has 32 bytes");
        let span = rest.first_chunk::<8>().expect("a digest has 32 bytes");
        let trace = u128::from_be_bytes(*trace);
        Self::of(trace, u64::from_be_bytes(*span), is_sampled(trace))
    }

    fn of(trace: u128, span: u64, is_sampled: bool) -> Self {
        // Ids of zero are not allowed.
        Self { trace: trace.max(1), span: span.max(1), is_sampled }
    }

    /// The context of a request or a call; `None` if there is none, several, or an invalid one.
    pub fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let only = values.next().filter(|_| values.next().is_none())?;
        only.to_str().ok()?.parse().ok()
    }

    /// The trace's id.
    pub fn trace_id(self) -> TraceId {
        TraceId(self.trace)
    }
}

/// The id of a trace, shown as in logs: 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Reads version 00, and what later versions have in common with it.
impl FromStr for TraceContext {
    type Err = InvalidTraceContext;

    fn from_str(text: &str) -> Result<Self, InvalidTraceContext> {
        let is_hex = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let mut parts = text.splitn(5, '-');
        let mut part = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length && is_hex(part));
            part.ok_or(InvalidTraceContext)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        if version == "ff" || version == "00" && text.len() != LENGTH {
            return Err(InvalidTraceContext);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| InvalidTraceContext)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| InvalidTraceContext)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| InvalidTraceContext)?;
        if trace == 0 || span == 0 {
            return Err(InvalidTraceContext);
        }
        Ok(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(*is_sampled))
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let read: TraceContext = TEXT.parse().unwrap();
        assert_eq!(read.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((read.span, read.is_sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(read.to_string(), TEXT);
        assert_eq!(read.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(serde_json::to_string(&read).unwrap(), format!("{TEXT:?}"));
        assert_eq!(serde_json::from_str::<TraceContext>(&format!("{TEXT:?}")).unwrap(), read);
    }

    #[test]
    fn only_what_the_standard_allows_is_read() {
        let check = |text: &str, expected: Option<bool>| {
            let read = text.parse::<TraceContext>().ok().map(|context| context.is_sampled);
            assert_eq!(read, expected, "{text:?}");
        };
        let ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        check(&format!("00-{ids}-00"), Some(false));
        check(&format!("00-{ids}-03"), Some(true));
        check(&format!("cc-{ids}-01-later"), Some(true));
        check(&format!("cc-{ids}-01"), Some(true));
        check(&format!("00-{ids}-01-"), None);
        check(&format!("00-{ids}-01-more"), None);
        check(&format!("ff-{ids}-01"), None);
        check(&format!("00-{}-01", ids.to_uppercase()), None);
        check(&format!("00-{ids}-+1"), None);
        check(&format!("00-{ids}"), None);
        check("00-00000000000000000000000000000000-b7ad6b7169203331-01", None);
        check("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None);
        check("", None);
    }

    #[test]
    fn a_header_is_read_if_it_is_the_only_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceContext::of_headers(&headers), None);
        headers.append(TRACEPARENT, TEXT.parse().unwrap());
        assert_eq!(TraceContext::of_headers(&headers), TEXT.parse().ok());
        headers.append(TRACEPARENT, TEXT.parse().unwrap());
        assert_eq!(TraceContext::of_headers(&headers), None);
    }

    #[test]
    fn the_span_of_an_add_is_derived_from_store_and_task() {
        let of = |store, task| TraceContext::of_add(StoreId(store), TaskId(task), |_| true);
        assert_eq!(of(1, 2), of(1, 2));
        // The ids stay the same in every version, or attempts would name spans that do not exist.
        let text = "00-adc3e51182509ffd9de2351d9a8e62b4-7466251e8e696187-01";
        assert_eq!(of(1, 2).to_string(), text);
        assert_ne!(of(1, 2).trace, of(2, 1).trace);
        assert_ne!(of(1, 2).trace, of(1, 3).trace);
    }

    #[test]
    fn an_id_is_never_zero() {
        let written = TraceContext::of(0, 0, false).to_string();
        assert_eq!(written, "00-00000000000000000000000000000001-0000000000000001-00");
    }
}
