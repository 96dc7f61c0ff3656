//! The settings of the Redis store, and its servers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::transport::address::{Login, read_url};
use super::transport::connect::ConnectParams;
use super::transport::dial::DialTarget;
use super::transport::node;
use super::transport::sentinel::Sentinels;
use super::transport::server::ServerMode;
use super::transport::servers::Servers;
use super::transport::tls::StoreTls;
use crate::dns::Dns;
use crate::model::breaker;
use crate::model::clock::Clock;
use crate::store::{Error, Result};
use crate::tls::ClientFiles;

/// How the servers are found.
#[derive(Clone)]
pub enum Topology {
    /// The server at the first URL.
    Standalone,
    /// The URLs are those of sentinels, which know the primary. User, password and database in them
    /// are for the primary.
    Sentinel {
        /// The sentinels' name of the primary.
        master_name: String,
        /// The user for the sentinels themselves, if they need one.
        username: Option<String>,
        /// The password for the sentinels themselves, if they need one.
        password: Option<String>,
    },
    /// The URLs are those of some nodes, which know the others.
    Cluster,
}

/// In a cluster, how long the id reserve lasts while the server of the id counter is away, at the
/// recent rate.
pub const ID_OUTAGE: Duration = Duration::from_secs(30);

/// How many names of servers and sentinels are looked up at a time.
const LOOKUPS: usize = 64;

/// The settings of the Redis store.
#[derive(Clone)]
pub struct Params {
    /// How the servers are found.
    pub topology: Topology,
    /// `redis://[user:password@]host:port/db`, at least one. With `rediss://`, all connections use
    /// TLS, those to sentinels included.
    pub urls: Vec<String>,
    /// What TLS trusts, and how it identifies this instance.
    pub tls: ClientFiles,
    /// The prefix of every key, without braces.
    pub key_prefix: String,
    /// The longest wait for a connection, and for an answer.
    pub timeout: Duration,
    /// How many replicas must have a write before a caller is told that it is done.
    pub wait_replicas: usize,
    /// The circuit breaker around each server.
    pub breaker: breaker::Params,
    /// Tests set a manual clock; scripts then use its now instead of the server's.
    pub clock: Clock,
    /// [`ID_OUTAGE`]. Tests make it short.
    pub id_outage: Duration,
}

impl Params {
    /// The defaults of the configuration, for one server.
    pub fn standalone(url: impl Into<String>) -> Self {
        Self {
            topology: Topology::Standalone,
            urls: vec![url.into()],
            tls: ClientFiles::default(),
            key_prefix: "delay".into(),
            timeout: Duration::from_secs(1),
            wait_replicas: 0,
            breaker: breaker::Params {
                failure_ratio: 0.5,
                min_calls: 20,
                window: Duration::from_secs(10),
                consecutive_failures: 3,
                open: Duration::from_millis(200),
                open_max: Duration::from_millis(500),
                half_open_probes: 1,
            },
            clock: Clock::system(),
            id_outage: ID_OUTAGE,
        }
    }

    /// The servers, not connected yet. Unless it `writes`, a confirmation only shows how many
    /// replicas there are.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if a URL cannot be read, or if there is none.
    pub(super) fn servers(&self, writes: bool) -> Result<Servers> {
        let mut addresses = Vec::new();
        let (mut login, mut is_tls) = (Login::default(), false);
        for url in self.urls.iter().rev() {
            let url = read_url(url)?;
            addresses.insert(0, url.address);
            (login, is_tls) = (url.login, is_tls || url.is_tls);
        }
        let tls = is_tls.then(|| StoreTls::new(self.tls.clone())).transpose()?;
        let dns = Dns::new(LOOKUPS);
        let mode = if matches!(self.topology, Topology::Cluster) {
            ServerMode::Cluster
        } else {
            ServerMode::Alone
        };
        let params = node::Params {
            access: ConnectParams { login, tls: tls.clone(), dns: dns.clone() },
            mode,
            timeout: self.timeout,
            breaker: self.breaker.clone(),
            wait_replicas: self.wait_replicas,
            marks: writes.then(|| self.key_prefix.as_str().into()),
            trouble: Arc::new(Notify::new()),
        };
        let first = addresses.first().cloned();
        match (&self.topology, first) {
            (_, None) => Err(Error::Misconfigured("store.redis.urls names no server".into())),
            (Topology::Standalone, Some(first)) => {
                Ok(Servers::one(DialTarget::Server(first), params))
            }
            (Topology::Sentinel { master_name, username, password }, _) => {
                let login = Login::of(username.as_deref(), password.as_deref());
                let own = ConnectParams { login, tls, dns };
                let sentinels = Sentinels::new(master_name.clone(), addresses, own, self.timeout);
                Ok(Servers::one(DialTarget::Primary(Arc::new(sentinels)), params))
            }
            (Topology::Cluster, _) => Ok(Servers::cluster(addresses, params)),
        }
    }
}
