//! The destination of a task: a service, a host named by a caller, or consumers that pull.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use memchr::memchr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{InvalidName, is_made_of};

/// The maximum length of a service name, in bytes.
const MAX_LENGTH: usize = 128;
const PULL: &str = "@pull";

/// A service name (`sn`, 1–128 of `A-Z a-z 0-9 . _ -`), a host with its port
/// (`hooks.example.com:443`), or `@pull`. Cheap to clone.
///
/// A host always has its port, even if the URL omits it, so hosts and services cannot be confused.
///
/// A lane has one due index per destination, so a blocked destination does not delay others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination(Arc<str>);

impl Destination {
    /// The destination of tasks that consumers pull.
    pub fn pull() -> Self {
        Self(PULL.into())
    }

    /// Whether consumers pull the tasks, instead of workers calling.
    pub fn is_pull(&self) -> bool {
        &*self.0 == PULL
    }

    /// The host and port of an absolute URL of a caller, if they are valid as a name.
    pub fn host(host: &str, port: u16) -> Option<Self> {
        let name = format!("{host}:{port}");
        name.parse().ok()
    }

    /// Whether this is a host of a URL.
    pub fn is_host(&self) -> bool {
        memchr(b':', self.0.as_bytes()).is_some()
    }

    /// Whether this is the name of a service.
    pub fn is_service(&self) -> bool {
        !self.is_pull() && !self.is_host()
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Destination {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        let is_port = |port: &str| {
            port.len() <= 5 && port.parse::<u16>().is_ok() && !port.starts_with(['0', '+'])
        };
        let (host, has_port) = match memchr(b':', name.as_bytes()) {
            Some(colon) => (&name[..colon], is_port(&name[colon + 1..])),
            None => (name, true),
        };
        let is_called =
            !host.is_empty() && name.len() <= MAX_LENGTH && is_made_of(host, "._-") && has_port;
        if name != PULL && !is_called {
            return Err(InvalidName(format!(
                "must be 1 to {MAX_LENGTH} characters out of A-Z a-z 0-9 . _ -"
            )));
        }
        Ok(Self(name.into()))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_service_a_host_with_its_port_or_the_consumers() {
        let check = |name: &str, expected: Option<(bool, bool)>| {
            let read = name.parse::<Destination>().ok();
            assert_eq!(read.map(|read| (read.is_service(), read.is_host())), expected, "{name:?}");
        };
        check("message.call_v2-eu", Some((true, false)));
        check("@pull", Some((false, false)));
        check("hooks.example.com:443", Some((false, true)));
        check("10.0.0.1:65535", Some((false, true)));
        check(&"a".repeat(128), Some((true, false)));
        check(&"a".repeat(129), None);
        check(&format!("{}:80", "a".repeat(126)), None);
        check("", None);
        check(":80", None);
        check("h:", None);
        check("h:0", None);
        check("h:080", None);
        check("h:+80", None);
        check("h:65536", None);
        check("h:80:80", None);
        check("[::1]:80", None);
        check("@push", None);
        check("a b", None);
        check("a{b}", None);
    }
}
