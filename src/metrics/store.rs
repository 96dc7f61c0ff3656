//! The metrics of the store: its calls, the embedded store's disk, and the Redis servers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::label_value;
use super::readings::Readings;
use super::recent::{Quantiles, RecentDurations, quantiles};
use super::tasks::TaskMetrics;
use super::{durations, observe};

label_value! {
    /// A kind of call. One for each call would make `/metrics` several times as long.
    pub Op {
        /// Adds.
        Add = "add",
        /// Claims, of workers and consumers.
        Claim = "claim",
        /// Ends of leases.
        Settle = "settle",
        /// Extensions of leases.
        Extend = "extend",
        /// Notes of attempts.
        Note = "note",
        /// The poll of each second, and reads of the next due times of lanes.
        Poll = "poll",
        /// Counts of lanes for the sampler.
        Sample = "sample",
        /// Reads of tasks, topics, counts and holds.
        Read = "read",
        /// Changes of tasks, topics and holds by callers.
        Change = "change",
        /// Moves between stores.
        Migrate = "migrate",
        /// Purges and other work in the background, and checks.
        Maintain = "maintain",
        /// Pings, such as those of `/readyz`.
        Ping = "ping",
    }
}

label_value! {
    /// Why a call failed.
    pub ErrorKind {
        /// The store does not answer.
        Unavailable = "unavailable",
        /// The lane is moving to another server.
        Moving = "moving",
        /// The disk, or the memory of Redis, is full.
        Full = "full",
        /// The topic's quota is used up.
        OverQuota = "over_quota",
        /// The cached registry entry of the topic is outdated.
        StaleEntry = "stale_entry",
        /// The idempotency key belongs to another task.
        KeyReused = "key_reused",
        /// The configuration of the store or of Redis cannot work.
        Misconfigured = "misconfigured",
        /// The store's data or answer cannot be read.
        Corrupt = "corrupt",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    op: Op,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    op: Op,
    kind: ErrorKind,
}

/// A Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFigures {
    /// Its name.
    pub name: Arc<str>,
    /// Whether its breaker refuses calls.
    pub is_away: bool,
    /// What it said of itself last.
    pub said: Option<ServerSaid>,
}

/// What a Redis server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSaid {
    /// Whether a crash of it may lose any of its tasks.
    pub is_volatile: bool,
    /// The bytes of memory that it uses.
    pub memory: u64,
    /// `maxmemory`; 0 without a limit.
    pub memory_limit: u64,
}

/// The handles to the metrics of one kind of call.
#[derive(Debug)]
struct CallMetrics {
    duration: Histogram,
    recent: RecentDurations,
    errors: Vec<Counter>,
}

/// One kind of call, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpFigures {
    /// The kind.
    pub op: Op,
    /// The calls of the last minute, at most 128.
    pub recent: Quantiles,
    /// How many calls failed since the start, by kind, without zeros.
    pub errors: Vec<(ErrorKind, u64)>,
}

/// The metrics of the store. Some exist for one of the two stores only.
#[derive(Debug)]
pub struct StoreMetrics {
    durations: Family<CallLabels, Histogram, fn() -> Histogram>,
    errors: Family<FailureLabels, Counter>,
    calls: Vec<CallMetrics>,
    claims_denied: Counter,
    /// Ends of tasks and leases.
    pub tasks: Arc<TaskMetrics>,
    /// The disk of the embedded store.
    pub disk: Option<DiskMetrics>,
    /// The Redis servers.
    pub servers: Option<Readings<Vec<ServerFigures>>>,
    /// How many ids are left in the id reserve.
    pub id_reserve: Option<Readings<u64>>,
}

impl StoreMetrics {
    fn new(disk: Option<DiskMetrics>, has_servers: bool) -> Arc<Self> {
        let durations = Family::new_with_constructor(durations as fn() -> Histogram);
        let errors = Family::<FailureLabels, Counter>::default();
        let calls = |&op: &Op| {
            let error = |&kind: &ErrorKind| errors.get_or_create_owned(&FailureLabels { op, kind });
            CallMetrics {
                duration: durations.get_or_create_owned(&CallLabels { op }),
                recent: RecentDurations::default(),
                errors: ErrorKind::ALL.iter().map(error).collect(),
            }
        };
        let calls = Op::ALL.iter().map(calls).collect();
        Arc::new(Self {
            durations,
            errors,
            calls,
            claims_denied: Counter::default(),
            tasks: Arc::default(),
            disk,
            servers: has_servers.then(Readings::default),
            id_reserve: has_servers.then(Readings::default),
        })
    }

    /// Registers the metrics of the embedded store.
    pub fn embedded() -> Arc<Self> {
        Self::new(Some(DiskMetrics::default()), false)
    }

    /// Registers the metrics of the Redis store.
    pub fn redis() -> Arc<Self> {
        Self::new(None, true)
    }

    /// Registers the metrics of both, for the documentation and for tests without a store.
    pub fn of_both() -> Arc<Self> {
        Self::new(Some(DiskMetrics::default()), true)
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.tasks.register(registry);
        registry.register_with_unit(
            "store_operation_duration",
            "Time that a call of the store takes, with all waits and repetitions",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "store_errors",
            "Calls of the store that failed, by operation and kind; in a batch of adds or settles \
             each one that failed. Refused adds count, too: over_quota, stale_entry, key_reused",
            self.errors.clone(),
        );
        registry.register(
            "claims_denied",
            "Claims that found their lane locked by another instance; always 0 with the embedded \
             store",
            self.claims_denied.clone(),
        );
        if let Some(servers) = &self.servers {
            registry.register_collector(Box::new(Servers(servers.clone())));
        }
        if let Some(reserve) = &self.id_reserve {
            registry.register_collector(Box::new(IdReserve(reserve.clone())));
        }
        if let Some(disk) = &self.disk {
            disk.register(registry);
        }
    }

    /// Observes the duration of a call.
    pub fn took(&self, op: Op, time: Duration) {
        let calls = &self.calls[op as usize];
        observe(&calls.duration, time);
        calls.recent.note(time);
    }

    /// All calls of the last minute, at most 128 of each kind.
    pub fn recent(&self) -> Quantiles {
        quantiles(self.calls.iter().map(|calls| &calls.recent))
    }

    /// The kinds of calls that were made in the last minute, or have ever failed.
    pub fn figures(&self) -> Vec<OpFigures> {
        let figures = |(&op, calls): (&Op, &CallMetrics)| {
            let errors = ErrorKind::ALL.iter().zip(&calls.errors);
            let errors = errors.map(|(&kind, count)| (kind, count.get()));
            OpFigures {
                op,
                recent: quantiles([&calls.recent]),
                errors: errors.filter(|(_, count)| *count > 0).collect(),
            }
        };
        let all = Op::ALL.iter().zip(&self.calls).map(figures);
        all.filter(|op| op.recent.count > 0 || !op.errors.is_empty()).collect()
    }

    /// Counts a failed call, or a failed part of a batch.
    pub fn failed(&self, op: Op, kind: ErrorKind) {
        self.calls[op as usize].errors[kind as usize].inc();
    }

    /// Counts a claim that found the lane locked by another instance.
    pub fn claim_denied(&self) {
        self.claims_denied.inc();
    }
}

/// The disk of the embedded store.
#[derive(Clone, Debug)]
pub struct DiskMetrics {
    free: Gauge<u64, AtomicU64>,
    reserve: Gauge<u64, AtomicU64>,
    fsync: Histogram,
    recent_fsyncs: Arc<RecentDurations>,
}

impl Default for DiskMetrics {
    fn default() -> Self {
        Self {
            free: Gauge::default(),
            reserve: Gauge::default(),
            fsync: durations(),
            recent_fsyncs: Arc::default(),
        }
    }
}

impl DiskMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "disk_free",
            "Free space of the file system with the embedded store, as of the last second; absent \
             with Redis",
            Unit::Bytes,
            self.free.clone(),
        );
        registry.register_with_unit(
            "disk_reserve",
            "Free space that the embedded store keeps for stored tasks: with less, adds are \
             refused; absent with Redis",
            Unit::Bytes,
            self.reserve.clone(),
        );
        registry.register_with_unit(
            "fsync_duration",
            "Time of the fsyncs of the embedded store's log, which confirm what callers asked for; \
             absent with Redis",
            Unit::Seconds,
            self.fsync.clone(),
        );
    }

    /// Sets the free bytes of the file system.
    pub fn is_free(&self, bytes: u64) {
        self.free.set(bytes);
    }

    /// Sets the bytes that new tasks leave free.
    pub fn reserves(&self, bytes: u64) {
        self.reserve.set(bytes);
    }

    /// Observes the duration of an fsync of the log.
    pub fn synced(&self, took: Duration) {
        observe(&self.fsync, took);
        self.recent_fsyncs.note(took);
    }

    /// The free bytes and the reserve, as set last.
    pub fn space(&self) -> (u64, u64) {
        (self.free.get(), self.reserve.get())
    }

    /// The fsyncs of the last minute, at most 128.
    pub fn recent_fsyncs(&self) -> Quantiles {
        quantiles([&*self.recent_fsyncs])
    }
}

#[derive(Debug)]
struct Servers(Readings<Vec<ServerFigures>>);

type ServerFigure = fn(&ServerFigures) -> Option<u64>;

/// The gauges of a server.
const SERVER_GAUGES: [(&str, &str, ServerFigure); 4] = [
    (
        "store_breaker",
        "Whether delayd sends nothing to the Redis server, because it does not answer: 1, or 0; \
         absent with the embedded store",
        |server| Some(server.is_away.into()),
    ),
    (
        "store_volatile",
        "Whether the Redis server does not sync its tasks to disk each second, or forbids CONFIG: \
         1, or 0; absent with the embedded store",
        |server| server.said.map(|said| said.is_volatile.into()),
    ),
    (
        "store_memory_bytes",
        "Memory that the Redis server uses (used_memory); absent with the embedded store",
        |server| server.said.map(|said| said.memory),
    ),
    (
        "store_memory_limit_bytes",
        "Memory with which the Redis server refuses adds (maxmemory); absent without a limit, and \
         with the embedded store",
        |server| server.said.map(|said| said.memory_limit).filter(|limit| *limit > 0),
    ),
];

impl Collector for Servers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let servers = self.0.now().unwrap_or_default();
        for (name, help, figure) in SERVER_GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for server in &servers {
                let Some(value) = figure(server) else { continue };
                let labels = [("server", &*server.name)];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct IdReserve(Readings<u64>);

impl Collector for IdReserve {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = encoder.encode_descriptor(
            "id_reserve",
            "The ids that this instance may use during an outage of the server of the id \
             counter; 0 without a Redis cluster; absent with the embedded store",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(self.0.now().unwrap_or(0)).encode(encoder)
    }
}
