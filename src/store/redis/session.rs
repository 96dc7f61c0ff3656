//! What the verbs of the contract share: connections, names of keys, and what this process
//! remembers of the store. The verbs are methods of [`Session`]; each stands in the file of its
//! topic, and this file knows none of them.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::add::queue::Queues;
use super::answer::corrupt;
use super::hints::HintSender;
use super::ids::shared::SharedIds;
use super::keys::Keys;
use super::log_once::LogOnce;
use super::params::Params;
use super::script::Script;
use super::transport::node::Purpose;
use super::transport::servers::{ServerRoute, Servers};
use crate::metrics::StoreMetrics;
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{Lane, StoreId};
use crate::store::{Asker, Reader, Result};

/// The last answer to a question that all callers share, and when it came.
pub(super) type LastAnswer<T> = Mutex<Option<(Instant, Result<T>)>>;

/// The store's id and format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreIdentity {
    pub(super) id: StoreId,
    pub(super) format: u32,
}

/// A store without its background tasks.
#[derive(Debug)]
pub(crate) struct Session {
    /// The connections for what is as large as adds, or as confirmed, and no add. Without
    /// `wait_replicas`, these are the connections of adds. With it, each wait blocks its connection
    /// for up to half of the timeout, and adds must not wait behind others.
    pub(super) beside_adds: ServerRoute,
    /// The connections for reading many lanes at once, for the workers.
    pub(super) polling: ServerRoute,
    /// The connections for reading many tasks, topics or lanes, as viewers do. Nothing else waits
    /// behind them.
    pub(super) reading: ServerRoute,
    /// The connections for everything else.
    pub(super) working: ServerRoute,
    /// As `working`; an answer comes once enough replicas have the writes.
    pub(super) confirming: ServerRoute,
    pub(super) servers: Arc<Servers>,
    /// The adds that wait for a batch.
    pub(super) queues: Queues,
    pub(super) keys: Keys,
    /// The task ids that are drawn and not used yet.
    pub(super) ids: SharedIds,
    pub(super) identity: LastAnswer<StoreIdentity>,
    pub(super) pinged: LastAnswer<UnixMillis>,
    pub(super) log_once: LogOnce,
    /// Held while the lanes of a topic and the registry are reconciled.
    pub(super) reconciling: Mutex<()>,
    pub(super) hints: HintSender,
    pub(super) clock: Clock,
    /// The longest wait for an answer.
    pub(super) timeout: Duration,
    /// How many replicas must have a write before a caller is told that it is done.
    pub(super) wait_replicas: usize,
    pub(super) metrics: Arc<StoreMetrics>,
}

impl Session {
    pub(super) fn new(params: Params, servers: Arc<Servers>, hints: HintSender) -> Self {
        let route = |purpose| ServerRoute { servers: servers.clone(), purpose };
        let outage = if servers.is_cluster() { params.id_outage } else { Duration::ZERO };
        Self {
            beside_adds: route(Purpose::beside_adds(params.wait_replicas)),
            polling: route(Purpose::Polling),
            reading: route(Purpose::Reading),
            working: route(Purpose::Working),
            confirming: route(Purpose::Confirming),
            servers,
            queues: Queues::default(),
            keys: Keys::new(&params.key_prefix),
            ids: SharedIds::new(outage),
            identity: Mutex::default(),
            pinged: Mutex::default(),
            log_once: LogOnce::default(),
            reconciling: Mutex::default(),
            hints,
            clock: params.clock,
            timeout: params.timeout,
            wait_replicas: params.wait_replicas,
            metrics: StoreMetrics::redis(),
        }
    }

    /// The call of a script: `EVALSHA` with its keys and now. The caller adds the other arguments.
    pub(super) fn call(&self, script: &Script, keys: &[String]) -> Cmd {
        let now = self.clock.manual_now().map_or(0, |now| now.0);
        let mut call = cmd("EVALSHA");
        call.arg(&script.sha).arg(keys.len()).arg(keys).arg(now);
        call
    }

    /// The call of a script over one lane.
    pub(super) fn lane_call(&self, script: &Script, lane: &Lane) -> Cmd {
        self.call(script, &self.keys.of_script(lane, script.lane_keys))
    }

    /// The call of a script over several lanes of one server. It gets the first keys of each lane.
    pub(super) fn lanes_call<'a>(
        &self,
        script: &Script,
        lanes: impl Iterator<Item = &'a Lane>,
    ) -> Cmd {
        let keys = |lane| self.keys.of_script(lane, script.lane_keys);
        self.call(script, &lanes.flat_map(keys).collect::<Vec<_>>())
    }

    /// The route of settles and extensions.
    pub(super) fn route_of(&self, asker: Asker) -> &ServerRoute {
        match asker {
            Asker::Worker => &self.working,
            Asker::Caller => &self.confirming,
        }
    }

    /// The route of the reads of contents.
    pub(super) fn route_for(&self, reader: Reader) -> &ServerRoute {
        match reader {
            Reader::Viewer => &self.reading,
            Reader::Worker => &self.working,
        }
    }

    /// The round trip to the lane's server; zero if it is unknown.
    pub(super) fn round_trip(&self, lane: &Lane) -> Duration {
        let map = self.servers.map();
        let node = map.owner(Some(Keys::slot_of(lane)));
        node.map_or(Duration::ZERO, |node| node.link(Purpose::Working).round_trip())
    }

    /// The store's now.
    pub(super) async fn now(&self) -> Result<UnixMillis> {
        self.read_time(self.working.run_one(cmd("TIME")).await?)
    }

    /// The time in an answer to `TIME`; in tests, the manual clock's.
    pub(super) fn read_time(&self, answer: Value) -> Result<UnixMillis> {
        let (seconds, micros): (i64, i64) =
            FromRedisValue::from_redis_value(answer).map_err(corrupt)?;
        Ok(self.clock.manual_now().unwrap_or(UnixMillis(seconds * 1_000 + micros / 1_000)))
    }
}
