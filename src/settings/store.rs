//! `[store]`: where tasks are stored.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Deserializer};

use super::breaker;
use super::check::{Wrong, ensure, within, within_spans};
use super::tls::ClientTls;
use super::value::Size;
use crate::model::breaker::Params;
use delayd_wire::Span;

/// The section `[store]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// The kind of the store.
    pub kind: StoreKind,
    /// Settings of the kind `embedded`.
    pub embedded: Embedded,
    /// Settings of the kind `redis`.
    pub redis: Redis,
}

/// `store.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// A database file of this process.
    Embedded,
    /// Redis, which several instances can share.
    Redis,
}

/// The section `[store.embedded]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedded {
    /// The database file.
    pub path: PathBuf,
    /// The space that new tasks leave free on the disk, 1 MiB to 1 TiB.
    pub reserve: Size,
}

/// The section `[store.redis]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// The topology of the servers.
    pub topology: Topology,
    /// The addresses: exactly one for the topology `standalone`, else 1 to 32 of sentinels or
    /// cluster nodes.
    pub urls: Vec<RedisUrl>,
    /// The name of the primary; only for the topology `sentinel`.
    pub master_name: String,
    /// The prefix of every key: 1 to 64 characters, no braces, no spaces.
    pub key_prefix: String,
    /// The timeout of connecting and of a command, 10 ms to 60 s.
    pub timeout: Span,
    /// How many replicas must confirm an add, 0 to 16.
    pub wait_replicas: usize,
    /// TLS to the servers; only for addresses with `rediss://`.
    pub tls: ClientTls,
    /// When the breaker of a server opens, and how it probes.
    pub breaker: Params,
}

/// `store.redis.topology`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// One server.
    Standalone,
    /// A primary and its replicas, watched by sentinels.
    Sentinel,
    /// Redis Cluster.
    Cluster,
}

/// The rules for an address, the second for one with a login.
const FORM: &str = "must be \"redis(s)://[user:password@]host[:port][/db]\"";
const FORM_OF_LOGIN: &str = "must be \"redis(s)://[user:password@]host[:port][/db]\"; \
                             percent-encode special characters of user and \
                             password: @ as %40, / as %2F, # as %23, ? as %3F";
/// The maximum number of addresses.
const MOST_URLS: usize = 32;

/// The address of a Redis server. `Debug` and `Display` omit users and passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// The address without its query.
    address: String,
    /// User, password and database.
    login: (String, Option<String>, String),
    /// User and password of the sentinels.
    sentinel: (Option<String>, Option<String>),
}

impl RedisUrl {
    /// The address without its query, with the password: for the client, never for a log.
    pub fn expose(&self) -> &str {
        &self.address
    }

    /// Whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.address.starts_with("rediss:")
    }

    /// The user and password for the sentinels, from the query: for the client, never for a log.
    pub fn sentinel_login(&self) -> (Option<String>, Option<String>) {
        self.sentinel.clone()
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        // An unescaped special character in a password ends the host; the rest is parsed as a path
        // or query.
        let form = if text.contains('@') { FORM_OF_LOGIN } else { FORM };
        let mut url = Url::parse(text).map_err(|_| form)?;
        if !matches!(url.scheme(), "redis" | "rediss")
            || !url.has_host()
            || !is_database(url.path())
            || url.fragment().is_some()
        {
            return Err(form);
        }
        let mut sentinel = (None, None);
        for (key, value) in url.query_pairs() {
            match &*key {
                "sentinel_username" => sentinel.0 = Some(value.into_owned()),
                "sentinel_password" => sentinel.1 = Some(value.into_owned()),
                _ if url.query().is_some_and(|query| query.contains('@')) => return Err(form),
                _ => {
                    return Err(
                        "may be followed by nothing but ?sentinel_username=…&sentinel_password=…",
                    );
                }
            }
        }
        let database = url.path().trim_matches('/').to_owned();
        let login = (url.username().to_owned(), url.password().map(str::to_owned), database);
        url.set_query(None);
        Ok(Self { address: url.into(), login, sentinel })
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address.split_once("://"), self.address.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => write!(f, "{scheme}://***@{host}"),
            _ => f.write_str(&self.address),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl<'de> Deserialize<'de> for RedisUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

fn is_database(path: &str) -> bool {
    let number = path.trim_start_matches('/');
    number.is_empty() || number.parse::<u32>().is_ok()
}

impl Store {
    /// A description of the configured store, without passwords.
    pub fn summary(&self) -> String {
        match self.kind {
            StoreKind::Embedded => format!("embedded, {}", self.embedded.path.display()),
            StoreKind::Redis => {
                let urls: Vec<_> = self.redis.urls.iter().map(ToString::to_string).collect();
                let Redis { topology, master_name, key_prefix, .. } = &self.redis;
                let space = if master_name.is_empty() { "" } else { " " };
                let (topology, urls) = (format!("{topology:?}").to_lowercase(), urls.join(", "));
                format!("redis, {topology}{space}{master_name} {urls}, keys {key_prefix}:*")
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        ensure("store.embedded.path", !self.embedded.path.as_os_str().is_empty(), || {
            "must be the path of a file".into()
        })?;
        within("store.embedded.reserve", self.embedded.reserve, Size::mib(1)..=Size::mib(1 << 20))?;
        self.redis.check()
    }
}

impl Redis {
    fn check(&self) -> Result<(), Wrong> {
        self.check_urls()?;
        let is_sentinel = self.topology == Topology::Sentinel;
        ensure("store.redis.master_name", is_sentinel != self.master_name.is_empty(), || {
            match is_sentinel {
                true => {
                    "must be what the sentinels call the primary, for the topology \"sentinel\""
                        .into()
                }
                false => "goes only with the topology \"sentinel\"".into(),
            }
        })?;
        let prefix = &self.key_prefix;
        let is_plain =
            prefix.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '{' && c != '}');
        ensure(
            "store.redis.key_prefix",
            is_plain && (1..=64).contains(&prefix.chars().count()),
            || "must be 1 to 64 characters without braces and spaces".into(),
        )?;
        within_spans("store.redis.timeout", self.timeout, "10ms", "60s")?;
        within("store.redis.wait_replicas", self.wait_replicas, 0..=16)?;
        if let Some(key) = self.tls.some_key() {
            ensure(&format!("store.redis.tls.{key}"), self.urls[0].is_tls(), || {
                "goes only with addresses that begin with rediss://".into()
            })?;
        }
        self.tls.check(&["store", "redis", "tls"])?;
        breaker::check(&self.breaker, "store.redis.breaker")
    }

    fn check_urls(&self) -> Result<(), Wrong> {
        let Self { topology, urls, .. } = self;
        let count = match topology {
            Topology::Standalone => {
                (1..=1, "must be a list of exactly one address for the topology \"standalone\"")
            }
            _ => (1..=MOST_URLS, "must be a list of 1 to 32 addresses"),
        };
        let key = "store.redis.urls";
        ensure(key, count.0.contains(&urls.len()), || count.1.into())?;
        let first = &urls[0];
        let alike = |url: &RedisUrl| (&url.login, &url.sentinel) == (&first.login, &first.sentinel);
        let is_zero = matches!(first.login.2.as_str(), "" | "0");
        let asks_sentinels = first.sentinel != (None, None);
        for (right, reason) in [
            (urls.iter().all(alike), "must all have the same user, password and database"),
            (
                urls.iter().all(|url| url.is_tls() == first.is_tls()),
                "must all begin with redis://, or all with rediss://",
            ),
            (
                *topology != Topology::Cluster || is_zero,
                "must name no database: a cluster has but 0",
            ),
            (
                *topology == Topology::Sentinel || !asks_sentinels,
                "may have sentinel_username and sentinel_password only for the topology \
                 \"sentinel\"",
            ),
        ] {
            ensure(key, right, || reason.into())?;
        }
        Ok(())
    }
}
