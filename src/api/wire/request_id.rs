//! Request ids: they connect an answer with log lines.
//!
//! The id is the caller's `x-request-id` if it is valid, otherwise a random one. Every answer
//! carries it. It is a task-local of the request's future, so errors can use it without a
//! parameter.

use axum::response::Response;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id of a caller, in bytes.
const MAX_LENGTH: usize = 128;

tokio::task_local! {
    static CURRENT: HeaderValue;
}

/// The id of the current request; `None` outside of one.
pub(crate) fn current() -> Option<String> {
    let text = |id: &HeaderValue| id.to_str().map(str::to_owned).ok();
    CURRENT.try_with(text).ok().flatten()
}

/// Runs `work` with the id, and adds the id to its answer.
pub(crate) fn scope(
    id: HeaderValue,
    work: impl Future<Output = Response>,
) -> impl Future<Output = Response> {
    CURRENT.scope(id.clone(), work).map(|mut response| {
        response.headers_mut().insert(HEADER, id);
        response
    })
}

/// The id of a request with these headers.
pub(crate) fn of(headers: &HeaderMap) -> HeaderValue {
    headers.get(HEADER).filter(|id| is_sane(id)).cloned().unwrap_or_else(fresh)
}

/// Whether a caller's id is short and plain enough for logs and headers.
fn is_sane(id: &HeaderValue) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_LENGTH).contains(&id.len()) && id.as_bytes().iter().all(is_plain)
}

/// 32 hexadecimal digits.
fn fresh() -> HeaderValue {
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(rand::random::<u128>().to_be_bytes()) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    HeaderValue::from_bytes(&digits).expect("digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_short_id_is_taken_over() {
        let check = |id: &[u8], taken: bool| {
            assert_eq!(is_sane(&HeaderValue::from_bytes(id).unwrap()), taken, "{id:?}");
        };
        check(b"req-1.A_z", true);
        check(&[b'a'; 128], true);
        check(&[b'a'; 129], false);
        check(b"", false);
        check(b"two words", false);
        check("订单".as_bytes(), false);
        check(b"a\"b", false);
    }

    #[test]
    fn fresh_ids_differ() {
        assert_ne!(fresh(), fresh());
        assert!(is_sane(&fresh()));
    }
}
