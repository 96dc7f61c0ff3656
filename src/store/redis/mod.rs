//! The Redis store: several instances share one server, one group of servers under Sentinel, or a
//! cluster.
//!
//! Every transition is one Lua script over one lane (`lua/`): atomic, idempotent and bounded.
//! `keys` lists the keys. Time is the server's `TIME`. The claim script takes a lock per lane
//! (`SET NX EX`), so that one instance claims it for a while; correctness does not depend on it.
//!
//! | folder | role |
//! |---|---|
//! | `session` | connections, keys, clock; the verbs of the contract are its methods |
//! | `claim`, `settle`, `query`, … | these verbs, each beside what it needs |
//! | `transport/` | sends commands to the right server |
//! | `script`, `compose`, `lua/` | the scripts |
//! | `add/`, `ids/` | batches of adds, and the ids of tasks |
//! | `registry/` | topics, and lanes that follow them |
//! | `migration/`, `fsck/` | tasks from other stores; checks |

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use self::hints::HintSender;
use self::keys::Keys;
pub use self::params::{ID_OUTAGE, Params, Topology};
use self::session::Session;
use self::transport::node::Purpose;
use self::transport::servers::ServerRoute;
use super::{Durability, Error, Formats, Hint, Message, Result, Signals, Store};
use crate::metrics::StoreMetrics;
use crate::model::breaker;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, StoreId};

mod add;
mod admin;
mod answer;
mod arguments;
mod audit;
mod claim;
mod compose;
mod contents;
mod destination;
mod find;
mod forget;
mod fsck;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod hint_relay;
mod hints;
mod identity;
mod ids;
mod instances;
mod keys;
mod log_once;
#[cfg(feature = "benching")]
#[doc(hidden)]
pub mod measured;
mod migration;
mod note;
mod params;
mod ping;
mod poll;
mod query;
mod record;
mod registry;
mod sample;
mod schedules;
#[doc(hidden)]
pub mod script;
mod session;
mod settle;
mod transport;

/// The Redis store.
#[derive(Debug)]
pub struct Redis {
    session: Arc<Session>,
    tasks: Vec<AbortHandle>,
}

impl Redis {
    /// Prepares the store and connects to the servers. An unreachable server is not an error: the
    /// store keeps trying, and calls fail with [`Error::Unavailable`] until it answers.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for a malformed URL, a refused login, a name that no sentinel
    /// knows, a server that would lose tasks, or a store of an unknown format.
    pub async fn connect(params: Params) -> Result<Self> {
        let servers = Arc::new(params.servers(true)?);
        // An unreachable server does not prevent the start: its links log it, and keep trying.
        let is_up = match servers.connect().await {
            Err(error @ Error::Misconfigured(_)) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "Redis does not answer yet");
                false
            }
            Ok(()) => true,
        };
        let session = Arc::new(Session::new(params, servers.clone(), HintSender::new()));
        if let Some(figures) = &session.metrics.servers {
            let servers = Arc::downgrade(&servers);
            figures.read_by(move || {
                servers.upgrade().map(|servers| servers.figures()).unwrap_or_default()
            });
        }
        if let Some(reserve) = &session.metrics.id_reserve {
            let session = Arc::downgrade(&session);
            reserve
                .read_by(move || session.upgrade().map_or(0, |session| session.ids.reserve_left()));
        }
        let tasks = vec![
            tokio::spawn(hint_relay::listen(session.clone())).abort_handle(),
            tokio::spawn(hint_relay::publish(session.clone())).abort_handle(),
            tokio::spawn(async move { servers.look_after().await }).abort_handle(),
        ];
        let store = Self { session, tasks };
        if is_up
            && let Ok(answer) =
                store.session.working.run_one(identity::ask(&store.session.keys)).await
        {
            identity::check(answer)?;
        }
        Ok(store)
    }

    /// What has the verbs of the contract.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// What this store counts.
    pub fn metrics(&self) -> &Arc<StoreMetrics> {
        &self.session.metrics
    }

    /// Gives the store another id. Running instances learn of it within seconds. Returns the
    /// previous id, if any, and the new one.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn replace_id(&self) -> Result<(Option<StoreId>, StoreId)> {
        identity::replace(&self.session).await
    }

    /// The formats of the store. A new store has the newest.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn formats(&self) -> Result<Formats> {
        identity::formats(&self.session).await
    }

    /// Gives the store the newest format that this program knows. Returns the formats before.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn raise_format(&self) -> Result<Formats> {
        identity::raise_format(&self.session).await
    }

    /// Connects to the servers once, for `delayd check`. Writes nothing. Returns a description of
    /// the servers, and their durability.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), and [`Error::Unavailable`] if the server that has the
    /// id counter does not answer.
    pub async fn probe(params: Params) -> Result<(String, Durability)> {
        let servers = Arc::new(params.servers(false)?);
        if let Err(error @ Error::Misconfigured(_)) = servers.connect().await {
            return Err(error);
        }
        // Through both kinds of connections, as `ping` does.
        let keys = Keys::new(&params.key_prefix);
        let route = |purpose| ServerRoute { servers: servers.clone(), purpose };
        let counter = deadpool_redis::redis::cmd("EXISTS").arg(keys.last_id()).take();
        route(Purpose::Adding).run_one(counter.clone()).await?;
        route(Purpose::Working).run_one(counter).await?;
        identity::check(route(Purpose::Working).run_one(identity::ask(&keys)).await?)?;
        Ok((servers.describe(), servers.durability()))
    }
}

impl Signals for Redis {
    async fn id(&self) -> Result<StoreId> {
        identity::id(&self.session).await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.session.hints.subscribe()
    }

    fn messages(&self) -> Option<broadcast::Receiver<Message>> {
        Some(self.session.hints.messages())
    }

    fn tell_others(&self, message: Message) {
        self.session.hints.tell_others(message);
    }

    fn server_of(&self, lane: &Lane) -> u64 {
        self.session.servers.number_of(lane)
    }

    fn round_trip(&self, lane: &Lane) -> Duration {
        self.session.round_trip(lane)
    }
}

impl Store for Redis {
    fn durability(&self) -> Durability {
        self.session.servers.durability()
    }

    fn breaker(&self) -> breaker::State {
        self.session.servers.breaker()
    }

    async fn ping(&self) -> Result<UnixMillis> {
        ping::ping(&self.session).await
    }

    async fn close(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.session.queues.close();
        for task in &self.tasks {
            task.abort();
        }
    }
}
