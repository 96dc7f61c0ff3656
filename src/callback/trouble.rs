//! What can go wrong under HTTP, in a few words: without addresses, payloads or texts of libraries.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use hyper_util::client::legacy;

use super::connector::ConnectTimeout;
use super::guard::Unresolved;
use crate::tls;
use delayd_wire::Span;

/// "Too many open files", of the process and of the system.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// Why there is no response, or only its beginning. The text becomes the task's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    #[error("timed out after {}", Span(*.0))]
    TimedOut(Duration),
    #[error("no connection within {}", Span(*.0))]
    ConnectTimedOut(Duration),
    #[error("connection refused")]
    Refused,
    #[error("connection reset")]
    Reset,
    #[error("connection closed early")]
    Closed,
    #[error("host or network unreachable")]
    Unreachable,
    #[error("name not resolved")]
    NotResolved,
    #[error("not called: no address of the host may be called")]
    Denied,
    #[error("TLS failed: {0}")]
    Tls(&'static str),
    #[error("too many open files in delayd")]
    TooManyFiles,
    #[error("answer is no HTTP")]
    NoHttp,
    #[error("head of the answer is too large: over 32 KiB, or over 100 headers")]
    LargeHead,
    #[error("answer is no HTTP/2, or its head is too large: over 32 KiB")]
    NoHttp2,
    #[error("HTTP/2 stream refused")]
    StreamRefused,
    #[error("no connection")]
    NoConnection,
    #[error("call failed")]
    Other,
}

impl Trouble {
    /// One of a few words, for the span of the call.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TimedOut(_) => "timeout",
            Self::ConnectTimedOut(_) => "connect_timeout",
            Self::Refused => "connection_refused",
            Self::Reset => "connection_reset",
            Self::Closed => "connection_closed",
            Self::Unreachable => "unreachable",
            Self::NotResolved => "name_not_resolved",
            Self::Denied => "address_denied",
            Self::Tls(_) => "tls",
            Self::TooManyFiles => "too_many_files",
            Self::NoHttp => "no_http",
            Self::LargeHead => "large_head",
            Self::NoHttp2 => "no_http2",
            Self::StreamRefused => "stream_refused",
            Self::NoConnection => "no_connection",
            Self::Other => "_OTHER",
        }
    }

    /// Finds the trouble in the client's error. `connect_timeout` is the timeout that may have run
    /// out.
    pub(super) fn of(error: TroubleCause<'_>, connect_timeout: Duration) -> Self {
        // The innermost cause that is known is the one to name.
        let named = causes(error).filter_map(Self::of_cause).last();
        let is_connect =
            error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
        match named {
            Some(named) => named,
            None if is_connect && causes(error).any(is_too_late) => {
                Self::ConnectTimedOut(connect_timeout)
            }
            None if is_connect => Self::NoConnection,
            None => Self::Other,
        }
    }

    /// Whether the other side may have closed an idle connection while the call was written on it.
    /// After garbage or a timeout, the connection was alive.
    pub(super) fn may_be_stale_connection(self) -> bool {
        matches!(self, Self::Reset | Self::Closed)
    }

    fn of_cause(cause: TroubleCause<'_>) -> Option<Self> {
        if let Some(unknown) = cause.downcast_ref::<Unresolved>() {
            return Some(match unknown {
                Unresolved::Denied => Self::Denied,
                Unresolved::Unknown => Self::NotResolved,
            });
        }
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return Some(Self::Tls(of_tls(error)));
        }
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            // Its `source` does not show the error of the connection.
            if let Some(error) = error.get_io() {
                return causes(error).filter_map(Self::of_cause).last();
            }
            return match error.reason()? {
                h2::Reason::REFUSED_STREAM if error.is_remote() => Some(Self::StreamRefused),
                // The library ends a stream whose head is over the limit or malformed, and the
                // connection if the head is much too large.
                h2::Reason::PROTOCOL_ERROR | h2::Reason::ENHANCE_YOUR_CALM
                    if error.is_library() =>
                {
                    Some(Self::NoHttp2)
                }
                _ => None,
            };
        }
        if let Some(error) = cause.downcast_ref::<hyper::Error>() {
            if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
                return Some(Self::Closed);
            }
            if error.is_parse_too_large() {
                return Some(Self::LargeHead);
            }
            return error.is_parse().then_some(Self::NoHttp);
        }
        let error = cause.downcast_ref::<io::Error>()?;
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Some(Self::Reset),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => Some(Self::Closed),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                Some(Self::Unreachable)
            }
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => Some(Self::TooManyFiles),
            _ => None,
        }
    }
}

/// A text for a TLS error.
fn of_tls(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidMessage(_) => {
            "the answer is not TLS; a port without TLS is called by http://"
        }
        error => tls::reason(error),
    }
}

type TroubleCause<'a> = &'a (dyn StdError + 'static);

fn is_too_late(cause: TroubleCause<'_>) -> bool {
    let is_slow = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    cause.is::<ConnectTimeout>() || cause.downcast_ref().is_some_and(is_slow)
}

/// The error and its causes, outermost first. `io::Error::source` skips the error that it wraps, so
/// that one is added here.
fn causes(error: TroubleCause<'_>) -> impl Iterator<Item = TroubleCause<'_>> {
    fn below(cause: TroubleCause<'_>) -> Option<TroubleCause<'_>> {
        match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        }
    }
    std::iter::successors(Some(error), |cause| below(*cause))
}
