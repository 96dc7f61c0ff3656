//! The name of a request, by which a caller's complaint finds our log lines.
//!
//! The caller's own `x-request-id` if it is a sane one, else a fresh one; every answer carries it. It travels beside
//! the request's future, so that an error can be logged and answered with it without being handed it.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken over, in bytes.
const MAX_LENGTH: usize = 128;

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request that is being answered; `None` outside of one.
pub(super) fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Runs `work` as the request `id`.
pub(super) async fn scope<T>(id: String, work: impl Future<Output = T>) -> T {
    CURRENT.scope(id, work).await
}

/// The id of a request with these headers.
pub(super) fn of(headers: &HeaderMap) -> String {
    headers.get(HEADER).and_then(sane).unwrap_or_else(fresh)
}

/// Gives an answer its request's id.
pub(super) fn name(response: &mut Response, id: String) {
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(HEADER, id);
    }
}

/// The caller's id, if it is short and plain enough for logs and headers.
fn sane(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_sane = (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(is_plain);
    is_sane.then(|| text.to_owned())
}

/// 32 hexadecimal digits.
fn fresh() -> String {
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    let digits = rand::random::<[u8; 16]>().into_iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    String::from_utf8(digits.collect()).expect("digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_short_id_is_taken_over() {
        let check = |id: &[u8], taken: bool| {
            assert_eq!(sane(&HeaderValue::from_bytes(id).unwrap()).is_some(), taken, "{id:?}");
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
        assert!(sane(&HeaderValue::try_from(fresh()).unwrap()).is_some());
    }
}
