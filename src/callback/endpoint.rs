//! One endpoint of a service, and the URLs of its calls.
//!
//! The operator configures an endpoint, so it is trusted. A caller sends the `url` that is appended
//! to it, which is not. Both are joined as text, never with `Url::join`: for that, `//evil` and
//! `/\evil` name another host. The result must still point to the endpoint.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use url::Url;

use super::target::{InvalidUrl, check_url};

/// For how long an endpoint is avoided after it refused a connection.
pub(super) const AVOIDED: Duration = Duration::from_secs(1);

/// One endpoint of a service.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// As in sent URLs: without user and password, and without a slash at the end.
    base: String,
    pub(super) parsed: Url,
    /// The header for the user and password of the address, if it has any.
    pub(super) authorization: Option<HeaderValue>,
    refused: Mutex<Option<Instant>>,
}

impl Endpoint {
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "holds {text:?}, which must be written like \"http://host:port\" or \
                 \"https://host\""
            )
        };
        let base = text.trim_end_matches('/');
        if base.bytes().any(|byte| matches!(byte, b'?' | b'#' | b'\\') || !byte.is_ascii_graphic())
        {
            return Err(wrong());
        }
        let mut parsed = Url::parse(base).map_err(|_| wrong())?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(wrong());
        }
        let authorization = authorization(&parsed);
        parsed.set_username("").and(parsed.set_password(None)).map_err(|()| wrong())?;
        let base = parsed.as_str().trim_end_matches('/').to_owned();
        Ok(Self { base, parsed, authorization, refused: Mutex::default() })
    }

    /// Whether its host is a name, not an address.
    pub(super) fn has_name(&self) -> bool {
        matches!(self.parsed.host(), Some(url::Host::Domain(_)))
    }

    /// The URL of a call.
    pub(super) fn url(&self, path: &str) -> Result<Uri, InvalidUrl> {
        check_url(path)?;
        let url = format!("{}{path}", self.base);
        sendable(if is_plain(path) { url } else { self.read(&url)? })
    }

    /// The parsed URL, if it is one of this endpoint.
    fn read(&self, url: &str) -> Result<String, InvalidUrl> {
        let url = Url::parse(url).map_err(|_| InvalidUrl("must be a path"))?;
        let origin = |url: &Url| {
            (
                url.scheme().to_owned(),
                url.host_str().map(str::to_owned),
                url.port_or_known_default(),
            )
        };
        let folder = self.parsed.path().trim_end_matches('/');
        let stays = url.path().strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        if origin(&url) != origin(&self.parsed) || !stays {
            return Err(InvalidUrl("must stay within the service's endpoint"));
        }
        Ok(url.into())
    }

    /// The endpoint has refused a connection. It is avoided for [`AVOIDED`].
    pub(super) fn has_refused(&self) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the endpoint has refused a connection recently.
    pub(super) fn is_avoided(&self, now: Instant) -> bool {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.is_some_and(|at| now.duration_since(at) < AVOIDED)
    }
}

/// The `Authorization` header for an address with a user: `http://user:password@host`.
fn authorization(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let said: Vec<u8> = percent_decode_str(url.username())
        .chain([b':'])
        .chain(percent_decode_str(url.password().unwrap_or_default()))
        .collect();
    let mut header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(said))).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The URL as it is sent.
pub(super) fn sendable(url: String) -> Result<Uri, InvalidUrl> {
    Uri::try_from(url).map_err(|_| InvalidUrl("must be a URL that can be sent"))
}

/// Whether a URL parser would leave the path unchanged: no dot segments, nothing that is
/// percent-encoded or would be.
fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_~?=&:,;+".contains(&byte);
    path.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::target::check_segments;
    use super::*;

    #[test]
    fn a_url_is_appended_and_stays_on_its_endpoint() {
        let check = |endpoint: &str, path: &str, expected: Option<&str>| {
            let url = Endpoint::new(endpoint).unwrap().url(path).ok();
            assert_eq!(url.map(|url| url.to_string()).as_deref(), expected, "{endpoint} {path}");
        };
        check("http://127.0.0.1:9000", "/call?a=b", Some("http://127.0.0.1:9000/call?a=b"));
        check("http://127.0.0.1:9000/", "/call", Some("http://127.0.0.1:9000/call"));
        check("HTTP://me:pw@H:80/", "/call", Some("http://h/call"));
        check("http://127.1:9000", "/{a}.b", Some("http://127.0.0.1:9000/%7Ba%7D.b"));
        check("https://h/api", "/call", Some("https://h/api/call"));
        check("https://h/api/", "/call/../other", Some("https://h/api/other"));
        check("https://h/api", "/../admin", None);
        check("https://h/api", "/%2e%2e/admin", None);
        check("http://h", "/@evil/", Some("http://h/@evil/"));
        check("http://h", "@evil/", None);
        check("http://h", ":1/", None);
        check("http://h", ".evil/", None);
        check("http://h", "//evil/", None);
    }

    #[test]
    fn a_user_in_an_endpoints_address_is_said_in_a_header() {
        let check = |endpoint: &str, expected: Option<&str>| {
            let endpoint = Endpoint::new(endpoint).unwrap();
            let said = endpoint.authorization.map(|header| header.to_str().unwrap().to_owned());
            assert_eq!(said.as_deref(), expected);
        };
        check("http://h", None);
        check("http://Aladdin:open%20sesame@h", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        check("http://me@h", Some("Basic bWU6"));
    }

    proptest! {
        #[test]
        fn whatever_is_allowed_can_be_sent_and_stays_on_the_host(path in "/[ -~]{0,40}") {
            let endpoint = Endpoint::new("http://host:9000").unwrap();
            if check_url(&path).is_ok() {
                let url = endpoint.url(&path).unwrap();
                prop_assert_eq!(url.authority().unwrap().as_str(), "host:9000");
                let meant = Url::parse(&format!("http://host:9000{path}")).unwrap();
                prop_assert_eq!(url.to_string(), meant.as_str());
            }
        }

        /// The rest of a path that holds dot segments could never be called there.
        #[test]
        fn whatever_a_new_task_may_name_stays_in_the_folder_of_an_endpoint(
            path in "/(\\.|%2[eE]|[ -~]|/\\.\\.){0,12}",
        ) {
            let endpoint = Endpoint::new("http://host:9000/api").unwrap();
            if check_url(&path).is_ok() && check_segments(&path).is_ok() {
                prop_assert!(endpoint.url(&path).unwrap().path().starts_with("/api/"));
            }
        }
    }
}
