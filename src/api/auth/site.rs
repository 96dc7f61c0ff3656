//! The checks against web pages of other sites: `Origin` and `Host`.
//!
//! Browsers send `Origin` with each `POST`, and a page cannot suppress it. They send none with a
//! `GET` of their own site. With DNS rebinding, a page resolves its own host name to our address,
//! and the browser then takes us for that site. Only `Host` then shows the name of the page.
//!
//! | tokens | `Origin` is sent | no `Origin` |
//! |---|---|---|
//! | some | must be public, or match `Host` | any `Host`: a page of another site has no token |
//! | none | the same, and `Host` must be safe | `Host` must be safe |
//! | none, and anonymous | the same | any `Host`: other machines call by its names |
//!
//! A safe host is an IP address, `localhost`, or that of a public origin: no page can take it over.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri, header};

use crate::api::wire::error::Error;
use crate::model::origin::Origin;

/// What counts as our own site.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    /// Origins of our own pages, whatever a request's `Host` is.
    pub(super) public: Vec<Origin>,
    /// Whether everyone who reaches the port may call.
    pub(super) is_anonymous: bool,
}

impl Site {
    /// Refuses requests that a browser sends for a page of another site. `has_tokens`: whether
    /// tokens are configured.
    ///
    /// # Errors
    /// 403.
    pub(super) fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        has_tokens: bool,
    ) -> Result<(), Error> {
        match headers.get(header::ORIGIN) {
            Some(origin) => self.check_origin(origin, uri, headers, has_tokens),
            None if has_tokens || self.is_anonymous => Ok(()),
            None => self.check_host(uri, headers),
        }
    }

    /// Behind a proxy that rewrites `Host`, only the public origins tell our own pages from others.
    fn check_origin(
        &self,
        origin: &HeaderValue,
        uri: &Uri,
        headers: &HeaderMap,
        has_tokens: bool,
    ) -> Result<(), Error> {
        let foreign = || Error::Forbidden("Origin: pages of another site may not call".into());
        let origin: Origin =
            origin.to_str().ok().and_then(|origin| origin.parse().ok()).ok_or_else(foreign)?;
        if self.public.contains(&origin) {
            return Ok(());
        }
        // A request whose target is a whole URL has the host there.
        let host = headers.get(header::HOST).and_then(authority);
        let host: Authority = uri.authority().cloned().or(host).ok_or_else(foreign)?;
        if !origin.is_at(&host) {
            return Err(foreign());
        }
        if !has_tokens && !is_unmistakable(host.host()) {
            return Err(Error::Forbidden(
                "Origin: while no tokens are configured, browsers must call an IP address, \
                 localhost or an origin of http.public_origins"
                    .into(),
            ));
        }
        Ok(())
    }

    /// A request without any host passes: every browser sends one.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
        let given = headers.get_all(header::HOST).iter().map(authority);
        let mut hosts = uri.authority().cloned().map(Some).into_iter().chain(given);
        let is_safe = |host: Option<Authority>| {
            host.is_some_and(|host| {
                is_unmistakable(host.host()) || self.public.iter().any(|own| own.is_at(&host))
            })
        };
        match hosts.all(is_safe) {
            true => Ok(()),
            false => Err(Error::Forbidden(
                "Host: while no tokens are configured, expected an IP address, localhost or the \
                 host of an origin of http.public_origins"
                    .into(),
            )),
        }
    }
}

fn authority(host: &HeaderValue) -> Option<Authority> {
    host.to_str().ok()?.parse().ok()
}

/// Whether no page can resolve the host to another address.
fn is_unmistakable(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page whose name was pointed at our address once read the metrics.
    #[test]
    fn without_tokens_a_host_that_a_page_may_have_taken_over_is_refused() {
        let public = vec!["https://delay.example".parse().unwrap()];
        let site = Site { public, is_anonymous: false };
        let check = |hosts: &[&str], uri: &str, safe: bool| {
            let headers: HeaderMap =
                hosts.iter().map(|host| (header::HOST, host.parse().unwrap())).collect();
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(site.check(&uri, &headers, false).is_ok(), safe, "{hosts:?} {uri}");
            // Neither a token nor an open port depends on the name.
            assert!(site.check(&uri, &headers, true).is_ok());
            let open = Site { is_anonymous: true, ..site.clone() };
            assert!(open.check(&uri, &headers, false).is_ok());
        };
        check(&["127.0.0.1:7799"], "/metrics", true);
        check(&["192.0.2.1"], "/metrics", true);
        check(&["[::1]:7799"], "/metrics", true);
        check(&["LocalHost:7799"], "/metrics", true);
        check(&["delay.example"], "/metrics", true);
        check(&["Delay.example:443"], "/metrics", true);
        // Only a program sends none.
        check(&[], "/metrics", true);
        check(&[], "http://127.0.0.1:7799/metrics", true);
        check(&["evil.example:7799"], "/metrics", false);
        check(&["evil.example"], "/metrics", false);
        check(&["delay.example:7799"], "/metrics", false);
        check(&["127.0.0.1.evil.example"], "/metrics", false);
        check(&["localhost.evil.example"], "/metrics", false);
        check(&["delayd:7799"], "/metrics", false);
        check(&[""], "/metrics", false);
        check(&["a b"], "/metrics", false);
        check(&["127.0.0.1", "evil.example"], "/metrics", false);
        check(&[], "http://evil.example:7799/metrics", false);
        check(&["127.0.0.1"], "http://evil.example:7799/metrics", false);
    }
}
