//! `[store]`: where tasks are kept.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Deserializer};

use super::check::{Wrong, ensure, within, within_spans};
use super::value::{Size, choice, redacted};
use crate::span::Span;

/// The section `[store]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Which of the two.
    pub kind: StoreKind,
    /// For the kind `embedded`.
    pub embedded: Embedded,
    /// For the kind `redis`.
    pub redis: Redis,
}

choice! {
    /// `store.kind`.
    StoreKind {
        /// A file of this process.
        Embedded = "embedded",
        /// A Redis server that several instances share.
        Redis = "redis",
    }
}

/// The section `[store.embedded]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedded {
    /// The database file.
    pub path: PathBuf,
    /// What new tasks leave free on its disk, 1 MiB to 1 TiB.
    pub reserve: Size,
}

/// The section `[store.redis]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// What kind of Redis.
    pub topology: Topology,
    /// Exactly one, for the topology `standalone`.
    pub urls: Vec<RedisUrl>,
    /// What every key begins with: 1 to 64 characters, no braces, no spaces.
    pub key_prefix: String,
    /// For a connection and for an answer, 10 ms to 60 s.
    pub timeout: Span,
}

/// `store.redis.topology`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone,
}

impl Topology {
    /// The name used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
        }
    }
}

impl<'de> Deserialize<'de> for Topology {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "standalone" => Ok(Self::Standalone),
            "sentinel" | "cluster" => Err(serde::de::Error::custom(
                "is not supported yet: it must be \"standalone\", one server without Sentinel or Cluster",
            )),
            _ => Err(serde::de::Error::custom("must be \"standalone\"")),
        }
    }
}

/// The address of a Redis server. `Debug` and `Display` leave user and password out.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The whole address, password included: for the client only, never for a log.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl<'de> Deserialize<'de> for RedisUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match Url::parse(&text) {
            Ok(url) if url.scheme() == "redis" && url.has_host() && is_database(url.path()) => Ok(Self(text)),
            Ok(url) if url.scheme() == "rediss" => {
                Err(serde::de::Error::custom("cannot be used: TLS to Redis is not supported yet, only redis://"))
            }
            _ => Err(serde::de::Error::custom("must be \"redis://[user:password@]host[:port][/db]\"")),
        }
    }
}

fn is_database(path: &str) -> bool {
    let number = path.trim_start_matches('/');
    number.is_empty() || number.parse::<u32>().is_ok()
}

impl Store {
    /// What is configured, for people: without passwords.
    pub fn summary(&self) -> String {
        match self.kind {
            StoreKind::Embedded => format!("embedded, {}", self.embedded.path.display()),
            StoreKind::Redis => {
                let urls: Vec<_> = self.redis.urls.iter().map(ToString::to_string).collect();
                format!("redis, {} {}, keys {}:*", self.redis.topology.as_str(), urls.join(", "), self.redis.key_prefix)
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        ensure("store.embedded.path", !self.embedded.path.as_os_str().is_empty(), || {
            "must be the path of a file".into()
        })?;
        within("store.embedded.reserve", self.embedded.reserve, Size::mib(1)..=Size::mib(1 << 20))?;
        let redis = &self.redis;
        ensure("store.redis.urls", redis.urls.len() == 1, || {
            "must be a list of exactly one address for the topology \"standalone\"".into()
        })?;
        let prefix = &redis.key_prefix;
        let is_plain = prefix.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '{' && c != '}');
        ensure("store.redis.key_prefix", is_plain && (1..=64).contains(&prefix.chars().count()), || {
            "must be 1 to 64 characters without braces and spaces".into()
        })?;
        within_spans("store.redis.timeout", redis.timeout, "10ms", "60s")
    }
}
