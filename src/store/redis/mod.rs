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

use tokio::task::AbortHandle;

use self::add::Adders;
use self::hints::Hints;
use self::keys::Keys;
pub use self::params::{Params, Topology};
use self::session::Session;
use self::transport::node::Purpose;
use self::transport::servers::Route;
use super::{Durability, Error, Formats, Result};
use crate::model::task::StoreId;

mod add;
mod admin;
mod answer;
mod arguments;
mod claim;
mod compose;
mod destination;
mod forget;
mod fsck;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod hint_relay;
mod hints;
mod identity;
mod ids;
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
#[doc(hidden)]
pub mod script;
mod session;
mod settle;
mod transport;
mod verbs;

/// The Redis store.
#[derive(Debug)]
pub struct Redis {
    session: Arc<Session>,
    adders: Adders,
    tasks: Vec<AbortHandle>,
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
        let session = Arc::new(Session::new(params, servers.clone(), hints));
        let tasks = vec![
            tokio::spawn(hint_relay::listen(session.clone())).abort_handle(),
            tokio::spawn(hint_relay::publish(session.clone(), outward)).abort_handle(),
            tokio::spawn(async move { servers.look_after().await }).abort_handle(),
        ];
        let adders = Adders::new(session.clone());
        let store = Self { session, adders, tasks };
        if is_up
            && let Ok(answer) =
                store.session.working.run_one(identity::ask(&store.session.keys)).await
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
        identity::replace(&self.session).await
    }

    /// The formats of the store; a new one has the newest.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn formats(&self) -> Result<Formats> {
        identity::formats(&self.session).await
    }

    /// Gives the store the newest format that this program knows. Answers its formats before.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn raise_format(&self) -> Result<Formats> {
        identity::raise_format(&self.session).await
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
