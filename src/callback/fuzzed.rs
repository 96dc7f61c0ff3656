//! The body of the fuzz target `url`: whatever `url` a caller writes, no call leaves its host, or
//! goes where callers may not send one.

use url::Url;

use super::endpoint::Endpoint;
use super::guard::Reach;
use super::services::Services;
use super::target::{check_segments, check_url, target, target_of_object};
use super::unlisted::Unlisted;

/// Reads the bytes as a path on a service, as an absolute URL, and as a content.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    path(text);
    absolute(text);
    if text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        assert_eq!(target_of_object(text), target(text), "{text:?}");
    }
    if let Ok(Some(found)) = target(text) {
        match found.sn {
            Some(sn) => assert!(sn.is_service() && check_url(&found.url).is_ok()),
            None => absolute(&found.url),
        }
    }
}

/// A path that is allowed stays on its endpoint.
fn path(text: &str) {
    if check_url(text).is_err() {
        return;
    }
    let endpoint = Endpoint::new("http://orders.internal:8080/base").expect("an endpoint");
    let url = endpoint.url(text);
    assert!(url.is_ok() || check_segments(text).is_err(), "{text:?} can never be called");
    if let Ok(url) = url {
        let origin = (url.scheme_str(), url.authority().map(|authority| authority.as_str()));
        assert_eq!(origin, (Some("http"), Some("orders.internal:8080")), "{text:?}");
        let meant = Url::parse(&format!("http://orders.internal:8080/base{text}")).expect("a URL");
        assert_eq!(url.to_string(), meant.as_str(), "{text:?}");
    }
}

/// An absolute URL that is accepted names a host on the public Internet, or a name that is resolved
/// later. The call goes to that host.
fn absolute(text: &str) {
    let services = Services::new(Vec::new()).expect("no services");
    services
        .allow(Unlisted { hosts: vec!["*".parse().expect("a pattern")], ..Unlisted::default() });
    let Ok(Some(host)) = services.host_of(text) else { return };
    let url = Url::parse(text).expect("its host was read");
    assert!(Reach::Public.allows_literal(&url), "{text:?}");
    assert!(url.username().is_empty() && url.password().is_none(), "{text:?}");
    let named = format!(
        "{}:{}",
        url.host_str().unwrap_or_default(),
        url.port_or_known_default().unwrap_or_default()
    );
    assert_eq!(named, host.as_str(), "{text:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_url_leaves_the_host_it_is_meant_for() {
        crate::testing::seeds::run("url", super::url);
    }
}
