//! The files of the pages at `/` and `/docs`, which are compiled in, and their headers.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

/// A compiled-in file.
#[derive(Clone, Copy)]
pub(super) struct StaticFile {
    pub(super) content_type: &'static str,
    /// Its content security policy.
    pub(super) policy: &'static str,
    pub(super) bytes: &'static [u8],
    /// The same, compressed; sent to clients that accept it.
    pub(super) gzip: Option<&'static [u8]>,
}

impl StaticFile {
    /// The answer to a request with these headers.
    pub(super) fn answer(self, request: &HeaderMap) -> Response {
        let headers = [
            (header::CONTENT_TYPE, self.content_type),
            (header::CONTENT_SECURITY_POLICY, self.policy),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            // Another version of the program has another page.
            (header::CACHE_CONTROL, "no-cache"),
        ];
        let Some(gzip) = self.gzip else {
            return (headers, self.bytes).into_response();
        };
        let vary = [(header::VARY, "accept-encoding")];
        if accepts_gzip(request) {
            (headers, vary, [(header::CONTENT_ENCODING, "gzip")], gzip).into_response()
        } else {
            (headers, vary, self.bytes).into_response()
        }
    }
}

/// Whether `Accept-Encoding` names `gzip` or `*` with a weight other than 0.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values.filter_map(text).flat_map(|value| value.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let is_zero = |part: &str| {
            let weight = part.strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
            weight.is_some_and(|weight| weight <= 0.0)
        };
        (name.eq_ignore_ascii_case("gzip") || name == "*") && !parts.any(is_zero)
    })
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_file_is_sent_to_clients_that_accept_it() {
        let file = StaticFile {
            content_type: "text/plain",
            policy: "default-src 'none'",
            bytes: b"plain",
            gzip: Some(b"gzip"),
        };
        let accepted = [
            ("", false),
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("*", true),
            ("gzip; q=0", false),
            ("identity", false),
            ("x-gzip", false),
        ];
        for (value, is_gzip) in accepted {
            let mut request = HeaderMap::new();
            request.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            let answer = file.answer(&request);
            let encoding = answer.headers().get(header::CONTENT_ENCODING);
            assert_eq!(encoding.is_some(), is_gzip, "{value}");
            assert_eq!(answer.headers()[header::VARY], "accept-encoding");
        }
        let plain = StaticFile { gzip: None, ..file };
        assert!(!plain.answer(&HeaderMap::new()).headers().contains_key(header::VARY));
    }
}
