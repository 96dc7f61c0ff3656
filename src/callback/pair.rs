//! Two clients that share their connections with no others: one with a pool, and one without. Each
//! reach has such a pair.

use std::time::Duration;

use hyper_util::client::legacy;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::connector::{self, Connector, Pooled};
use super::content::CallBody;
use super::guard::{Guard, Reach};
use crate::dns::Dns;

/// How long a pooled connection is kept. Many servers close theirs after five seconds.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// How many names of services are looked up at a time, with those of token endpoints. Each takes a
/// thread, for ten seconds or more if the resolver is silent.
pub(super) const SERVICE_LOOKUPS: usize = 256;
/// The same of hosts that callers name.
const CALLER_LOOKUPS: usize = 128;

/// The clients of one reach, or of one service with TLS of its own.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) pooled: legacy::Client<Connector, CallBody>,
    /// Keeps no connections: each call gets a new one.
    pub(super) unpooled: legacy::Client<Connector, CallBody>,
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

/// The clients of all reaches.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    pub(super) anywhere: Pair,
    pub(super) private: Pair,
    pub(super) network: Pair,
    pub(super) public: Pair,
    /// Looks up the names of services.
    services: Dns,
    connect_timeout: Duration,
}

impl Pairs {
    /// `dns` makes a resolver with a number of places.
    pub(super) fn new(
        connect_timeout: Duration,
        tls: &ClientConfig,
        dns: impl Fn(usize) -> Dns,
    ) -> Self {
        let (services, callers) = (dns(SERVICE_LOOKUPS), dns(CALLER_LOOKUPS));
        let pair = |reach, dns: &Dns| {
            Pair::new(connect_timeout, tls, None, &Guard::new(reach, dns.clone()))
        };
        Self {
            anywhere: pair(Reach::Anywhere, &services),
            private: pair(Reach::Private, &callers),
            network: pair(Reach::Network, &callers),
            public: pair(Reach::Public, &callers),
            services,
            connect_timeout,
        }
    }

    pub(super) fn of(&self, reach: Reach) -> &Pair {
        match reach {
            Reach::Anywhere => &self.anywhere,
            Reach::Private => &self.private,
            Reach::Network => &self.network,
            Reach::Public => &self.public,
        }
    }

    /// A pair for a service with TLS of its own.
    pub(super) fn of_service(
        &self,
        tls: &ClientConfig,
        name: Option<&ServerName<'static>>,
    ) -> Pair {
        let guard = Guard::new(Reach::Anywhere, self.services.clone());
        Pair::new(self.connect_timeout, tls, name, &guard)
    }
}
