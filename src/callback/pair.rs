//! Two clients that share their connections with no others: one with a pool, and one without.

use std::time::Duration;

use hyper_util::client::legacy;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::connector::{self, Connector, Pooled};
use super::content::Content;
use super::guard::Guard;

/// How long a pooled connection is kept. Many servers close theirs after five seconds.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// The clients of one reach, or of one service with TLS of its own.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) pooled: legacy::Client<Connector, Content>,
    /// Keeps no connections: each call gets a new one.
    pub(super) unpooled: legacy::Client<Connector, Content>,
}

impl Pair {
    /// The servers' certificates must have `name`, or that of the URL's host.
    pub(super) fn new(
        connect_timeout: Duration,
        tls: &ClientConfig,
        name: Option<&ServerName<'static>>,
        guard: &Guard,
    ) -> Self {
        let client =
            |pooled| connector::client(connect_timeout, guard.clone(), (tls, name), pooled);
        Self { pooled: client(Pooled::For(POOL_IDLE)), unpooled: client(Pooled::Never) }
    }
}
