//! The files of the pages at `/` and `/docs`, which are compiled in, and their headers.

use std::sync::OnceLock;

use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

/// A compiled-in file.
#[derive(Debug)]
pub(super) struct StaticFile {
    content_type: &'static str,
    /// Its content security policy.
    policy: &'static str,
    plain: FileContent,
    /// The same, compressed; sent to clients that accept it.
    gzip: Option<FileContent>,
}

/// The bytes of an answer.
#[derive(Debug)]
struct FileContent {
    bytes: &'static [u8],
    /// The strong entity tag, which is computed for the first answer.
    tag: OnceLock<HeaderValue>,
}

impl FileContent {
    const fn of(bytes: &'static [u8]) -> Self {
        Self { bytes, tag: OnceLock::new() }
    }

    fn tag(&self) -> &HeaderValue {
        self.tag.get_or_init(|| {
            let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(self.bytes));
            HeaderValue::try_from(format!("\"{digest}\"")).expect("base64 is valid in a header")
        })
    }
}

impl StaticFile {
    pub(super) const fn new(
        content_type: &'static str,
        policy: &'static str,
        bytes: &'static [u8],
        gzip: Option<&'static [u8]>,
    ) -> Self {
        let gzip = match gzip {
            Some(bytes) => Some(FileContent::of(bytes)),
            None => None,
        };
        Self { content_type, policy, plain: FileContent::of(bytes), gzip }
    }

    /// The answer to a request with these headers: 304 if the client has the file.
    pub(super) fn answer(&self, request: &HeaderMap) -> Response {
        let gzip = self.gzip.as_ref().filter(|_| accepts_gzip(request));
        let content = gzip.unwrap_or(&self.plain);
        let mut response = if has(request, content.tag()) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let headers = [
                (header::CONTENT_TYPE, self.content_type),
                (header::CONTENT_SECURITY_POLICY, self.policy),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::REFERRER_POLICY, "no-referrer"),
            ];
            let encoding = gzip.map(|_| [(header::CONTENT_ENCODING, "gzip")]);
            (headers, encoding, content.bytes).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, content.tag().clone());
        // The names of files are stable, and another version of the program has other files. So a
        // browser asks each time, and gets 304 while they are the same.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if self.gzip.is_some() {
            headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        }
        response
    }
}

#[cfg(test)]
impl StaticFile {
    pub(super) fn bytes(&self) -> &'static [u8] {
        self.plain.bytes
    }

    /// The compressed bytes.
    pub(super) fn gzip(&self) -> &'static [u8] {
        self.gzip.as_ref().map_or_else(Default::default, |gzip| gzip.bytes)
    }
}

/// Whether `If-None-Match` names the tag or `*` (RFC 9110, 13.1.2). A proxy may have made the tag a
/// weak one, which names the same content here.
fn has(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let values = request.get_all(header::IF_NONE_MATCH).iter();
    let mut named = values.filter_map(text).flat_map(|value| value.split(',')).map(str::trim);
    named.any(|named| named == "*" || named.strip_prefix("W/").unwrap_or(named) == tag)
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

    fn file(gzip: Option<&'static [u8]>) -> StaticFile {
        StaticFile::new("text/plain", "default-src 'none'", b"plain", gzip)
    }

    #[test]
    fn a_client_that_has_the_file_is_told_so() {
        let file = file(Some(b"gzip"));
        let ask = |tag: &str, encoding: &str| {
            let mut request = HeaderMap::new();
            request.insert(header::IF_NONE_MATCH, tag.parse().unwrap());
            request.insert(header::ACCEPT_ENCODING, encoding.parse().unwrap());
            file.answer(&request)
        };
        let tag = |encoding| ask("", encoding).headers()[header::ETAG].to_str().unwrap().to_owned();
        let (plain, gzip) = (tag("identity"), tag("gzip"));
        // A strong tag names these bytes, so each coding has its own.
        assert!(plain.starts_with('"') && gzip.starts_with('"') && plain != gzip);
        let cases = [
            (plain.clone(), 304),
            (format!("W/{plain}"), 304),
            (format!("\"x\", {plain}"), 304),
            ("*".into(), 304),
            (gzip, 200),
            (plain.replace('"', ""), 200),
            (String::new(), 200),
        ];
        for (named, status) in cases {
            let answer = ask(&named, "identity");
            assert_eq!(answer.status(), status, "{named}");
            assert_eq!(answer.headers()[header::ETAG], plain.as_str(), "{named}");
            assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-cache", "{named}");
            assert_eq!(answer.headers()[header::VARY], "accept-encoding", "{named}");
            assert_eq!(answer.headers().contains_key(header::CONTENT_TYPE), status == 200);
        }
    }

    #[test]
    fn a_compressed_file_is_sent_to_clients_that_accept_it() {
        let compressed = file(Some(b"gzip"));
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
            let answer = compressed.answer(&request);
            let encoding = answer.headers().get(header::CONTENT_ENCODING);
            assert_eq!(encoding.is_some(), is_gzip, "{value}");
            assert_eq!(answer.headers()[header::VARY], "accept-encoding");
        }
        assert!(!file(None).answer(&HeaderMap::new()).headers().contains_key(header::VARY));
    }
}
