//! What may be called without a section in `[services]`: hosts of callers' URLs, and names that a
//! template turns into addresses. `guard` limits which addresses these may reach.

use std::str::FromStr;

use super::endpoint::Endpoint;
use super::guard::Reach;
use crate::model::glob::Glob;
use crate::model::task::Destination;

/// The placeholder for the `sn` in a template.
const PLACE: &str = "{sn}";

/// What may be called without being listed. By default nothing.
#[derive(Clone, Debug)]
pub struct Unlisted {
    /// The hosts of absolute URLs (`callback.allow_hosts`).
    pub hosts: Vec<HostPattern>,
    /// Whether such hosts must be on the public Internet (`callback.deny_private_hosts`).
    pub deny_private: bool,
    /// The template for names that are not listed (`services_fallback.dns`).
    pub fallback: Option<Fallback>,
}

impl Default for Unlisted {
    fn default() -> Self {
        Self { hosts: Vec::new(), deny_private: true, fallback: None }
    }
}

impl Unlisted {
    /// Which addresses calls of the host may reach; `None` if it may not be called.
    pub(super) fn host(&self, host: &Destination) -> Option<Reach> {
        let is_allowed = self.hosts.iter().any(|pattern| pattern.matches(host));
        is_allowed.then_some(if self.deny_private { Reach::Public } else { Reach::Private })
    }

    /// The endpoint of the service, by the template.
    pub(super) fn endpoint(&self, sn: &Destination) -> Option<Endpoint> {
        self.fallback.as_ref()?.endpoint(sn.as_str())
    }
}

/// A host such as `hooks.example.com`, `*.example.com` or `10.0.0.5:8080`. Without a port, any port
/// matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    host: Glob,
    port: Option<u16>,
}

/// The error for a text that is not a host pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a host, of which * stands for any characters, perhaps with a port: \
     \"*.example.com\" or \"10.0.0.5:8080\""
)]
pub struct InvalidPattern;

impl HostPattern {
    fn matches(&self, host: &Destination) -> bool {
        let Some((name, port)) = host.as_str().rsplit_once(':') else { return false };
        self.host.matches(name) && self.port.is_none_or(|only| port.parse() == Ok(only))
    }
}

impl FromStr for HostPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let text = text.to_ascii_lowercase();
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => {
                (host, Some(port.parse().ok().filter(|port| *port > 0).ok_or(InvalidPattern)?))
            }
            None => (text.as_str(), None),
        };
        let is_plain = host.chars().all(|c| c.is_ascii_alphanumeric() || "._-*".contains(c));
        let host = host.parse().ok().filter(|_| is_plain).ok_or(InvalidPattern)?;
        Ok(Self { host, port })
    }
}

/// A template such as `http://{sn}:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    before: String,
    after: String,
}

/// The error for a text that is not a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be an address with {PLACE} in its host, such as \"http://{PLACE}:8080\" or \
     \"http://{PLACE}.svc.cluster.local\""
)]
pub struct InvalidFallback;

impl Fallback {
    /// The endpoint of a service; `None` if its name is not a valid host name, or is an address.
    fn endpoint(&self, sn: &str) -> Option<Endpoint> {
        if !is_host_name(sn) {
            return None;
        }
        let endpoint = Endpoint::new(&format!("{}{sn}{}", self.before, self.after)).ok()?;
        // A name such as 127.1 or 0x7f.1 is an address.
        endpoint.has_name().then_some(endpoint)
    }
}

impl FromStr for Fallback {
    type Err = InvalidFallback;

    fn from_str(text: &str) -> Result<Self, InvalidFallback> {
        let (before, after) = text.split_once(PLACE).ok_or(InvalidFallback)?;
        let (_, host_before) = before.split_once("://").ok_or(InvalidFallback)?;
        let is_in_host =
            !host_before.contains(['/', '@', '?', '#', ':']) && !after.contains(['{', '@']);
        let fallback = Self { before: before.to_owned(), after: after.to_owned() };
        let is_right = is_in_host && fallback.endpoint("a-1.b").is_some();
        if is_right { Ok(fallback) } else { Err(InvalidFallback) }
    }
}

/// Whether the text matches `[a-z0-9-]+(\.[a-z0-9-]+)*`.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_hosts_and_perhaps_a_port() {
        let check = |pattern: &str, host: &str, fits: bool| {
            let pattern: HostPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&host.parse().unwrap()), fits, "{pattern:?} {host}");
        };
        check("hooks.example.com", "hooks.example.com:443", true);
        check("Hooks.Example.com", "hooks.example.com:8443", true);
        check("hooks.example.com:443", "hooks.example.com:443", true);
        check("hooks.example.com:443", "hooks.example.com:80", false);
        check("*.example.com", "a.b.example.com:80", true);
        check("*.example.com", "example.com:80", false);
        check("*.example.com", "a.example.com.evil:80", false);
        check("example.com", "example.com", false);
        check("*", "127.0.0.1:80", true);
        for text in
            ["", ":80", "a:", "a:0", "a:70000", "a:b", "http://a", "a/b", "a b", "[::1]", "a:80:80"]
        {
            assert_eq!(text.parse::<HostPattern>(), Err(InvalidPattern), "{text}");
        }
    }

    #[test]
    fn a_template_makes_an_address_of_a_name_and_of_nothing_else() {
        let check = |template: &str, sn: &str, expected: Option<&str>| {
            let endpoint = template.parse::<Fallback>().unwrap().endpoint(sn);
            let url = endpoint.map(|endpoint| endpoint.url("/x").unwrap());
            assert_eq!(url.map(|url| url.to_string()).as_deref(), expected, "{template} {sn}");
        };
        check("http://{sn}:8080", "billing", Some("http://billing:8080/x"));
        check(
            "http://{sn}.ns.svc.cluster.local/api",
            "billing.v2",
            Some("http://billing.v2.ns.svc.cluster.local/api/x"),
        );
        check("https://svc-{sn}.example.com", "a-1", Some("https://svc-a-1.example.com/x"));
        for sn in ["10.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "1", "a.1"] {
            check("http://{sn}:8080", sn, None);
        }
        for sn in
            ["Billing", "a_b", "a..b", ".a", "a.", "", "a/b", "a@b", "a:1", "[::1]", "a b", "ａ"]
        {
            check("http://{sn}:8080", sn, None);
        }
    }

    #[test]
    fn a_template_has_its_place_in_the_host() {
        let check =
            |text: &str| assert_eq!(text.parse::<Fallback>(), Err(InvalidFallback), "{text}");
        check("http://host:8080");
        check("{sn}");
        check("ftp://{sn}");
        check("http://host/{sn}");
        check("http://me@{sn}");
        check("http://{sn}@host");
        check("http://{sn}:8080/?a");
        check("http://{sn}:8080/#a");
        check("http://{sn}.{sn}");
        check("http://{sn}:port");
        check("http://x:{sn}");
    }
}
