//! The Redis store: several instances share the work of one server, of one under sentinels, or of a
//! cluster.
//!
//! Every transition is one Lua script over one lane (`lua/`), atomic, idempotent and bounded;
//! `keys` lists what is kept where. Time is the server's `TIME`. The lane's lock (`SET NX EX`
//! inside the claim script) makes one instance its claimer for a while; nobody's correctness rests
//! on it.
//!
//! The road of a command: a verb here → `servers` (who has its slot; redirections) → `node` (one
//! primary) → `link` (its connection, breaker, repeats) → `dial` (find, connect, look) → `server`
//! (is it fit for use).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::add::Adders;
use self::hints::Hints;
use self::identity::Identity;
use self::ids::Ids;
use self::keys::Keys;
use self::query::Pinged;
use self::registry::topic::Complaints;
use self::transport::address::{Login, read_url};
use self::transport::dial::Target;
use self::transport::node::Purpose;
use self::transport::sentinel::Sentinels;
use self::transport::server::Mode;
use self::transport::servers::{Route, Servers};
use super::{Durability, Error, Formats, Result};
use crate::breaker;
use crate::clock::Clock;
use crate::task::StoreId;

mod add;
mod admin;
mod answer;
mod claim;
mod compose;
mod destination;
mod forget;
mod fsck;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod hints;
mod identity;
mod ids;
mod keys;
#[cfg(feature = "benching")]
#[doc(hidden)]
pub mod measured;
mod migration;
mod note;
mod poll;
mod query;
mod record;
mod registry;
#[doc(hidden)]
pub mod script;
mod settle;
mod transport;
mod verbs;

/// How the servers are found.
#[derive(Clone)]
pub enum Topology {
    /// The one at the first URL.
    Standalone,
    /// The URLs are those of sentinels, who know the primary. User, password and database in them
    /// are the primary's.
    Sentinel {
        /// What the sentinels call the primary.
        master_name: String,
        /// The sentinels' own user, if they want one.
        username: Option<String>,
        /// The sentinels' own password, if they want one.
        password: Option<String>,
    },
    /// The URLs are those of some nodes, who know the others.
    Cluster,
}

/// The settings of the Redis store.
#[derive(Clone)]
pub struct Params {
    /// How the servers are found.
    pub topology: Topology,
    /// `redis://[user:password@]host:port/db`, at least one.
    pub urls: Vec<String>,
    /// What every key begins with; no braces.
    pub key_prefix: String,
    /// The longest wait for a connection, and for an answer.
    pub timeout: Duration,
    /// How many replicas must have what a caller is told to be done.
    pub wait_replicas: usize,
    /// The circuit breaker around each server.
    pub breaker: breaker::Params,
    /// Tests set a manual one; then its now is given to every script instead of the server's.
    pub clock: Clock,
    /// Tell other instances of adds to be called: for an instance that does not work itself. (Of
    /// those to be pulled it always tells.)
    pub publish_hints: bool,
}

impl Params {
    /// The configuration's defaults, for one server.
    pub fn standalone(url: impl Into<String>) -> Self {
        Self {
            topology: Topology::Standalone,
            urls: vec![url.into()],
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
            publish_hints: false,
        }
    }

    fn servers(&self) -> Result<Servers> {
        let mut addresses = Vec::new();
        let mut login = Login::default();
        for url in self.urls.iter().rev() {
            let (address, first) = read_url(url)?;
            addresses.insert(0, address);
            login = first;
        }
        let mode =
            if matches!(self.topology, Topology::Cluster) { Mode::Cluster } else { Mode::Alone };
        let params = transport::node::Params {
            login,
            mode,
            timeout: self.timeout,
            breaker: self.breaker.clone(),
            wait_replicas: self.wait_replicas,
            trouble: Arc::new(Notify::new()),
        };
        let first = addresses.first().cloned();
        match (&self.topology, first) {
            (_, None) => Err(Error::Misconfigured("store.redis.urls names no server".into())),
            (Topology::Standalone, Some(first)) => Ok(Servers::one(Target::Server(first), params)),
            (Topology::Sentinel { master_name, username, password }, _) => {
                let own = Login::of(username.as_deref(), password.as_deref());
                let sentinels = Sentinels::new(master_name.clone(), addresses, own, self.timeout);
                Ok(Servers::one(Target::Primary(Arc::new(sentinels)), params))
            }
            (Topology::Cluster, _) => Ok(Servers::cluster(addresses, params)),
        }
    }
}

/// The Redis store.
#[derive(Debug)]
pub struct Redis {
    inner: Arc<Inner>,
    adders: Adders,
    tasks: Vec<AbortHandle>,
}

/// What the verbs share.
#[derive(Debug)]
struct Inner {
    adding: Route,
    working: Route,
    /// For what a caller is told to be done.
    confirming: Route,
    servers: Arc<Servers>,
    keys: Keys,
    ids: Ids,
    identity: Identity,
    pinged: Pinged,
    complaints: Complaints,
    /// Held by what brings a topic's lanes and the registry together again.
    reconciling: tokio::sync::Mutex<()>,
    hints: Hints,
    clock: Clock,
    timeout: Duration,
    wait_replicas: usize,
}

impl Inner {
    fn new(params: Params, servers: Arc<Servers>, hints: Hints) -> Self {
        let route = |purpose| Route { servers: servers.clone(), purpose };
        Self {
            adding: route(Purpose::Adding),
            working: route(Purpose::Working),
            confirming: route(Purpose::Confirming),
            servers,
            keys: Keys::new(&params.key_prefix),
            ids: Ids::default(),
            identity: Identity::default(),
            pinged: Pinged::default(),
            complaints: Complaints::default(),
            reconciling: tokio::sync::Mutex::default(),
            hints,
            clock: params.clock,
            timeout: params.timeout,
            wait_replicas: params.wait_replicas,
        }
    }
}

impl Redis {
    /// Prepares the store and looks at the servers. One that does not answer is no error: it is
    /// looked for all the time, and until it is found the verbs answer [`Error::Unavailable`].
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for a malformed URL, a refused login, a name that no sentinel
    /// knows, a server that would lose tasks, or a store of a format that this program does not
    /// know.
    pub async fn connect(params: Params) -> Result<Self> {
        let servers = Arc::new(params.servers()?);
        // Out of reach is no reason not to start: the links say so, and try on.
        let is_up = match servers.connect().await {
            Err(error @ Error::Misconfigured(_)) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "Redis does not answer yet");
                false
            }
            Ok(()) => true,
        };
        let (hints, outward) = Hints::new(params.publish_hints);
        let inner = Arc::new(Inner::new(params, servers.clone(), hints));
        let tasks = vec![
            tokio::spawn(hints::listen(inner.clone())).abort_handle(),
            tokio::spawn(hints::publish(inner.clone(), outward)).abort_handle(),
            tokio::spawn(async move { servers.look_after().await }).abort_handle(),
        ];
        let adders = Adders::new(inner.clone());
        let store = Self { inner, adders, tasks };
        if is_up
            && let Ok(answer) = store.inner.working.run_one(identity::ask(&store.inner.keys)).await
        {
            identity::check(answer)?;
        }
        Ok(store)
    }

    /// Gives the store another id. Running instances take it up within seconds. Answers the one
    /// before, if it had one, and the new one.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn replace_id(&self) -> Result<(Option<StoreId>, StoreId)> {
        identity::replace(&self.inner).await
    }

    /// The formats of the store; a new one has the newest.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn formats(&self) -> Result<Formats> {
        identity::formats(&self.inner).await
    }

    /// Gives the store the newest format that this program knows. Answers its formats before.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn raise_format(&self) -> Result<Formats> {
        identity::raise_format(&self.inner).await
    }

    /// Looks at the servers once, as [`connect`](Self::connect) does, for `delayd check`: nothing
    /// is written. Answers which there are, for people, and what they keep.
    ///
    /// # Errors
    /// Those of `connect`; [`Error::Unavailable`] as well if the server that draws the ids does not
    /// answer.
    pub async fn probe(params: Params) -> Result<(String, Durability)> {
        let servers = Arc::new(params.servers()?);
        if let Err(error @ Error::Misconfigured(_)) = servers.connect().await {
            return Err(error);
        }
        // On both ways, as `ping` does.
        let keys = Keys::new(&params.key_prefix);
        let route = |purpose| Route { servers: servers.clone(), purpose };
        let counter = deadpool_redis::redis::cmd("EXISTS").arg(keys.last_id()).take();
        route(Purpose::Adding).run_one(counter.clone()).await?;
        route(Purpose::Working).run_one(counter).await?;
        identity::check(route(Purpose::Working).run_one(identity::ask(&keys)).await?)?;
        Ok((servers.describe(), servers.durability()))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
