//! The Redis store: several instances share the work of one server, of one under sentinels, or of a cluster.
//!
//! Every transition is one Lua script over one lane (`lua/`), atomic, idempotent and bounded; `keys` lists what is kept where.
//! Time is the server's `TIME`. The lane's lock (`SET NX EX` inside the claim script) makes one instance its claimer for a
//! while; nobody's correctness rests on it.
//!
//! The road of a command: a verb here → `servers` (who has its slot; redirections) → `node` (one primary) → `link` (its
//! connection, breaker, repeats) → `dial` (find, connect, look) → `server` (is it fit for use).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;

use self::add::Adders;
use self::address::{Login, read_url};
use self::dial::Target;
use self::hints::Hints;
use self::identity::Identity;
use self::ids::Ids;
use self::keys::Keys;
use self::node::Purpose;
use self::query::Pinged;
use self::sentinel::Sentinels;
use self::server::Mode;
use self::servers::{Route, Servers};
use self::topic::Complaints;
use super::{
    Added, Adopted, Adoptee, AttemptNote, Cancelled, Checked, Claim, Claimed, Counts, Cursor, Durability, Error,
    Forecast, Hint, Histories, Holds, ListQuery, Listed, Look, Looked, Misfire, Misfired, Moment, NewContent, NewTask,
    NextDue, Registered, Rescheduled, Result, Settle, Settled, Spread, Store, Summary, Task, TopicEntry, Waiting,
};
use crate::breaker;
use crate::clock::{Clock, UnixMillis};
use crate::task::{Destination, Lane, Receipt, State, StoreId, TaskId, Topic, TopicPolicy};

mod add;
mod address;
mod answer;
mod batch;
mod by_hand;
mod claim;
mod confirming;
mod destination;
mod dial;
mod fault;
mod forget;
mod fsck;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod hints;
mod identity;
mod ids;
mod keys;
mod link;
mod look;
mod map;
#[cfg(feature = "benching")]
#[doc(hidden)]
pub mod measured;
mod namesakes;
mod node;
mod note;
mod opening;
mod query;
mod reconcile;
mod record;
mod registry;
mod script;
mod sentinel;
mod server;
mod servers;
mod settle;
mod slot;
mod survey;
mod topic;
mod transfer;

pub(super) use fsck::CheckPlace;

/// How the servers are found.
#[derive(Clone)]
pub enum Topology {
    /// The one at the first URL.
    Standalone,
    /// The URLs are those of sentinels, who know the primary. User, password and database in them are the primary's.
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
    /// Tell other instances of adds to be called: for an instance that does not work itself. (Of those to be pulled it always tells.)
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
        let mode = if matches!(self.topology, Topology::Cluster) { Mode::Cluster } else { Mode::Alone };
        let params = node::Params {
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
    /// Prepares the store and looks at the servers. One that does not answer is no error: it is looked for all the time,
    /// and until it is found the verbs answer [`Error::Unavailable`].
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for a malformed URL, a refused login, a name that no sentinel knows, or a server that would lose tasks.
    pub async fn connect(params: Params) -> Result<Self> {
        let servers = Arc::new(params.servers()?);
        // Out of reach is no reason not to start: the links say so, and try on.
        match servers.connect().await {
            Err(error @ Error::Misconfigured(_)) => return Err(error),
            Err(error) => tracing::debug!(%error, "Redis does not answer yet"),
            Ok(()) => {}
        }
        let (hints, outward) = Hints::new(params.publish_hints);
        let inner = Arc::new(Inner::new(params, servers.clone(), hints));
        let tasks = vec![
            tokio::spawn(hints::listen(inner.clone())).abort_handle(),
            tokio::spawn(hints::publish(inner.clone(), outward)).abort_handle(),
            tokio::spawn(async move { servers.look_after().await }).abort_handle(),
        ];
        let adders = Adders::new(inner.clone());
        Ok(Self { inner, adders, tasks })
    }

    /// Gives the store another id. Running instances take it up within seconds. Answers the one before, if it had one, and the new one.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn replace_id(&self) -> Result<(Option<StoreId>, StoreId)> {
        identity::replace(&self.inner).await
    }

    /// Looks at the servers once, as [`connect`](Self::connect) does, for `delayd check`: nothing is written. Answers which there are,
    /// for people, and what they keep.
    ///
    /// # Errors
    /// Those of `connect`; [`Error::Unavailable`] as well if the server that draws the ids does not answer.
    pub async fn probe(params: Params) -> Result<(String, Durability)> {
        let servers = Arc::new(params.servers()?);
        if let Err(error @ Error::Misconfigured(_)) = servers.connect().await {
            return Err(error);
        }
        // On both ways, as `ping` does.
        for purpose in [Purpose::Adding, Purpose::Working] {
            let counter = deadpool_redis::redis::cmd("EXISTS").arg(Keys::new(&params.key_prefix).last_id()).take();
            Route { servers: servers.clone(), purpose }.run_one(counter).await?;
        }
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

impl Store for Redis {
    async fn id(&self) -> Result<StoreId> {
        identity::id(&self.inner).await
    }

    fn durability(&self) -> Durability {
        self.inner.servers.durability()
    }

    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        self.adders.add(tasks).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        claim::claim(&self.inner, &claim).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        settle::settle(&self.inner, &self.inner.working, &settles).await
    }

    async fn settle_confirmed(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        settle::settle(&self.inner, &self.inner.confirming, &settles).await
    }

    fn server_of(&self, lane: &Lane) -> u64 {
        self.inner.servers.number_of(lane)
    }

    fn breaker(&self) -> breaker::State {
        self.inner.servers.breaker()
    }

    async fn extend(&self, lane: &Lane, id: TaskId, receipt: &Receipt, lease: Duration) -> Result<Settled> {
        settle::extend(&self.inner, &self.inner.working, lane, (id, receipt), lease).await
    }

    async fn extend_confirmed(&self, lane: &Lane, id: TaskId, receipt: &Receipt, lease: Duration) -> Result<Settled> {
        settle::extend(&self.inner, &self.inner.confirming, lane, (id, receipt), lease).await
    }

    async fn cancel(&self, lane: &Lane, id: TaskId) -> Result<Cancelled> {
        by_hand::cancel(&self.inner, lane, id).await
    }

    async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let moved = by_hand::reschedule(&self.inner, lane, id, moment, content.as_ref()).await?;
        if let Rescheduled::Done { due } = moved {
            self.inner.hints.tell_all(lane, due);
        }
        Ok(moved)
    }

    async fn get(&self, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        query::get(&self.inner, lane, id).await
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        query::list(&self.inner, &query).await
    }

    async fn summaries(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<Vec<Option<Summary>>> {
        query::summaries(&self.inner, lane, &ids).await
    }

    async fn replay(&self, lane: &Lane, ids: Vec<TaskId>, spread: Spread) -> Result<usize> {
        let count = by_hand::replay(&self.inner, lane, &ids, spread).await?;
        if count > 0 {
            self.inner.hints.tell_all(lane, self.inner.clock.now() + spread.first);
        }
        Ok(count)
    }

    async fn discard(&self, lane: &Lane, state: State, ids: Vec<TaskId>) -> Result<usize> {
        forget::discard(&self.inner, lane, state, &ids).await
    }

    async fn clear(&self, lane: &Lane, limit: usize) -> Result<usize> {
        forget::clear(&self.inner, lane, limit).await
    }

    async fn forecast(&self, lane: &Lane, step: Duration, steps: usize) -> Result<Forecast> {
        query::forecast(&self.inner, lane, step, steps).await
    }

    async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        note::note(&self.inner, &notes).await
    }

    async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> {
        note::notes(&self.inner, lane, id).await
    }

    async fn lend(&self, lane: &Lane, ids: Vec<TaskId>, receipt: &Receipt, lease: Duration) -> Result<Vec<bool>> {
        transfer::lend(&self.inner, lane, &ids, receipt, lease).await
    }

    async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        transfer::adopt(&self.inner, &tasks).await
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        look::next(&self.inner, look::For::Workers, &lanes).await
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        look::next(&self.inner, look::For::Consumers, &lanes).await
    }

    async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        look::histories(&self.inner, &lanes).await
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        query::stats(&self.inner, lane).await
    }

    async fn purge(&self, lane: &Lane, state: State, before: UnixMillis, limit: usize) -> Result<usize> {
        forget::purge(&self.inner, lane, state, before, limit).await
    }

    async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        destination::set_hold(&self.inner, destination, is_held).await
    }

    async fn holds(&self) -> Result<Holds> {
        destination::holds(&self.inner).await
    }

    async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        destination::waiting(&self.inner, &lanes).await
    }

    async fn register(&self, entry: TopicEntry) -> Result<TopicEntry> {
        registry::assert(&self.inner, &entry).await
    }

    async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        topic::topic(&self.inner, topic).await
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        topic::topics(&self.inner).await
    }

    async fn look(&self, look: Look) -> Looked {
        look::each_second(&self.inner, &look).await
    }

    async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        topic::set_policy(&self.inner, topic, policy).await
    }

    async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        topic::pause(&self.inner, topic).await
    }

    async fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> Result<Option<bool>> {
        topic::resume(&self.inner, topic, becomes).await
    }

    async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        topic::forget_misfire(&self.inner, topic, misfire).await
    }

    async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        topic::unregister(&self.inner, entry).await
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        registry::recover(&self.inner).await
    }

    async fn check(&self, from: Cursor, repair: bool) -> Result<Checked> {
        fsck::check(&self.inner, from, repair).await
    }

    async fn ping(&self) -> Result<UnixMillis> {
        query::ping(&self.inner).await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.inner.hints.subscribe()
    }

    async fn close(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
