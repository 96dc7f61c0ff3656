//! The origin of a web page: scheme, host and port.

use std::str::FromStr;

use http::uri::Authority;

/// An origin. Two are equal if a browser treats them as the same site: the case of the host and a
/// default port do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    is_https: bool,
    /// In lower case.
    host: String,
    port: u16,
}

/// The error for an invalid origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be http:// or https://, a host and, if it is not the default, a port, without a path, \
     such as \"https://delay.example.com\""
)]
pub struct InvalidOrigin;

impl Origin {
    /// Whether a request to this host and port has this origin. Without a port, the default of the
    /// scheme counts.
    pub fn is_at(&self, host: &Authority) -> bool {
        host.host().eq_ignore_ascii_case(&self.host) && self.port_of(host) == Some(self.port)
    }

    fn port_of(&self, authority: &Authority) -> Option<u16> {
        port_of(authority, self.is_https)
    }
}

/// `None` if what follows the host is no port.
fn port_of(authority: &Authority, is_https: bool) -> Option<u16> {
    match authority.port() {
        Some(port) => Some(port.as_u16()).filter(|port| *port != 0),
        None if authority.as_str().len() > authority.host().len() => None,
        None => Some(if is_https { 443 } else { 80 }),
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidOrigin)?;
        let is_https = match scheme {
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(InvalidOrigin),
        };
        let authority: Authority = rest.parse().map_err(|_| InvalidOrigin)?;
        let (host, port) = (authority.host(), port_of(&authority, is_https));
        match port {
            Some(port) if !host.is_empty() && !host.contains('*') => {
                Ok(Self { is_https, host: host.to_ascii_lowercase(), port })
            }
            _ => Err(InvalidOrigin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_origins_may_be_spelled_differently() {
        let check = |one: &str, other: &str, same: bool| {
            let (a, b): (Origin, Origin) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(a == b, same, "{one} {other}");
        };
        check("https://delay.example", "HTTPS://Delay.Example:443", true);
        check("http://delay.example", "http://delay.example:80", true);
        check("http://[::1]:7799", "http://[::1]:7799", true);
        check("http://delay.example", "https://delay.example", false);
        check("https://delay.example", "https://delay.example:8443", false);
        check("https://delay.example", "https://delay.example.evil", false);
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in [
            "",
            "null",
            "delay.example",
            "*",
            "https://*",
            "https://*.example",
            "https://",
            "https://:443",
            "https://delay.example/",
            "https://delay.example/path",
            "https://delay.example?a",
            "https://delay.example#a",
            "https://me@delay.example",
            "https://delay.example:",
            "https://delay.example:0",
            "https://delay.example:65536",
            "https://delay example",
            "ftp://delay.example",
            "file://",
        ] {
            assert_eq!(text.parse::<Origin>(), Err(InvalidOrigin), "{text}");
        }
    }
}
