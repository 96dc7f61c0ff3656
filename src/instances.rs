//! The instances that share the store, as their heartbeats show them.
//!
//! Each instance sends a heartbeat to the store once a second. Heartbeats decide which instance
//! looks at which lane (`worker/ownership`), what is shown, how many instances share the forecast's
//! capacity, and whether an instance without workers reports overdue tasks. They never decide which
//! instance may claim: an instance whose heartbeats do not arrive still works (ADR 20, ADR 22).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{DestinationLimits, Detail};
use crate::metrics::{Usage, usage};
use crate::model::clock::UnixMillis;
use crate::model::task::Destination;
use crate::model::version::VERSION;
use crate::store::{DestinationState, FORMAT, INSTANCE_TTL, Instance, MAX_OUTCOME};

/// The most destinations of a heartbeat, and their most bytes. All instances read all heartbeats
/// once a second.
const MOST_DESTINATIONS: usize = 200;
const MOST_BYTES: usize = 16 << 10;

/// How long heartbeats repeat a probe. An instance obeys it if it hears of it within
/// [`INSTANCE_TTL`]. That is shorter, so that it never hears of one that it has forgotten.
const PROBES_KEPT: Duration = Duration::from_secs(60);

/// The fields of a heartbeat that do not change.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// The address that it listens on.
    pub address: String,
    /// When it started.
    pub started: UnixMillis,
    /// Whether it makes callbacks.
    pub has_workers: bool,
}

/// This instance, and all living instances.
#[derive(Debug)]
pub struct Instances {
    own: Instance,
    /// When the last heartbeat was made, and what the process had used by then.
    used: Mutex<Option<(Instant, Usage)>>,
    living: RwLock<Arc<[Instance]>>,
    /// The last probe of each destination that an operator had probed through any instance.
    probes: Mutex<BTreeMap<Destination, UnixMillis>>,
}

impl Default for Instances {
    fn default() -> Self {
        Self::new(Params::default())
    }
}

impl Instances {
    /// An instance with a new id, which knows no others yet.
    pub fn new(params: Params) -> Self {
        Self::with_id(rand::random(), params)
    }

    /// An instance with this id. No other start may have it.
    pub fn with_id(id: u64, Params { address, started, has_workers }: Params) -> Self {
        let own = Instance {
            id: format!("{id:016x}"),
            name: host_name(),
            version: VERSION.to_owned(),
            started,
            address,
            has_workers,
            format: FORMAT,
            ..Instance::default()
        };
        let (used, living, probes) = Default::default();
        Self { own, used, living, probes }
    }

    /// The id of this instance.
    pub fn id(&self) -> &str {
        &self.own.id
    }

    /// The heartbeat of this instance now, by its clock. `cpu` is the use since the last call.
    pub fn heartbeat(&self, limits: &DestinationLimits, at: UnixMillis) -> Instance {
        let (now, usage) = (Instant::now(), usage().unwrap_or_default());
        let before = self.used.lock().unwrap_or_else(PoisonError::into_inner).replace((now, usage));
        let cpu = before.map_or(0.0, |(then, before)| {
            let passed = now.duration_since(then).as_secs_f64().max(0.001);
            ((usage.cpu_seconds - before.cpu_seconds) / passed).max(0.0)
        });
        Instance {
            cpu,
            memory: usage.memory,
            calls: limits.in_flight() as u64,
            destinations: worst(limits, at),
            probes: self.probes().clone(),
            ..self.own.clone()
        }
    }

    /// Notes that an operator has a destination probed. The next heartbeats tell the others. `at`
    /// is by the store's clock.
    pub fn probe(&self, sn: &Destination, at: UnixMillis) {
        self.probes().insert(sn.clone(), at);
    }

    /// When this instance heard that an operator has the destination probed, within a minute.
    pub fn probed(&self, sn: &Destination) -> Option<UnixMillis> {
        self.probes().get(sn).copied()
    }

    fn probes(&self) -> MutexGuard<'_, BTreeMap<Destination, UnixMillis>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last heartbeat of this instance that the store answered.
    pub fn own(&self) -> Instance {
        let living = self.living();
        living.iter().find(|one| one.id == self.own.id).unwrap_or(&self.own).clone()
    }

    /// Replaces the living instances. Returns the destinations that an operator has probed through
    /// another instance since the last call.
    pub fn take_in(&self, living: Vec<Instance>) -> Vec<Destination> {
        let now = living.iter().map(|one| one.seen).max().unwrap_or_default();
        let mut probes = self.probes();
        probes.retain(|_, at| now.since(*at) < PROBES_KEPT);
        let mut news = Vec::new();
        for (sn, &at) in living.iter().flat_map(|one| &one.probes) {
            let is_new = probes.get(sn).is_none_or(|known| *known < at);
            if is_new && now.since(at) < INSTANCE_TTL {
                probes.insert(sn.clone(), at);
                news.push(sn.clone());
            }
        }
        *self.living.write().unwrap_or_else(PoisonError::into_inner) = living.into();
        news
    }

    /// The instances that were alive at the last poll, sorted by name. Empty before the first one.
    pub fn living(&self) -> Arc<[Instance]> {
        self.living.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The destinations of a heartbeat.
fn worst(limits: &DestinationLimits, at: UnixMillis) -> BTreeMap<Destination, DestinationState> {
    let mut left = MOST_BYTES;
    let cut = |text: Option<String>| {
        text.map(|text| text[..text.floor_char_boundary(MAX_OUTCOME)].to_owned())
    };
    let shown = |(sn, detail): (Destination, Detail)| {
        let state = state(detail, at);
        let (why, error) = (cut(state.no_access_token), cut(state.last_error));
        (sn, DestinationState { no_access_token: why, last_error: error, ..state })
    };
    let fits = |one: &(Destination, DestinationState)| {
        let bytes = serde_json::to_string(one).map_or(0, |text| text.len());
        left.checked_sub(bytes).inspect(|rest| left = *rest).is_some()
    };
    let all = limits.worst(MOST_DESTINATIONS).into_iter().map(shown);
    all.filter(|(_, state)| has_calls(state)).take_while(fits).collect()
}

/// Whether the instance calls the destination, called it lately, or keeps calls to it waiting.
pub fn has_calls(of: &DestinationState) -> bool {
    of.is_stopped() || of.in_flight > 0 || of.calls > 0
}

/// The state of a destination as heartbeats have it.
pub fn state(detail: Detail, at: UnixMillis) -> DestinationState {
    let Detail { standing, probes_in, rate, recent, .. } = detail;
    let millis = |span: Duration| span.as_millis() as u64;
    let (last_error, ago) = standing.last_failure.unzip();
    DestinationState {
        breaker: standing.breaker,
        probes_in_ms: probes_in.map(millis),
        in_flight: standing.in_flight,
        concurrency: standing.window,
        rate: rate.map(|rate| rate.to_string()),
        retry_after_ms: standing.held_for.map(millis),
        no_access_token: standing.no_token,
        last_error,
        last_error_at: ago.map(|ago| at - ago),
        calls: recent.count,
        failures: recent.failures,
        p50_ms: recent.p50.map(millis),
        p99_ms: recent.p99.map(millis),
    }
}

/// The name of the host; empty if the system does not say.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Allowance, LimitParams};
    use crate::model::breaker;

    #[test]
    fn an_instance_shows_its_last_heartbeat() {
        let instances = Instances::new(Params { has_workers: true, ..Params::default() });
        assert_eq!(instances.own().calls, 0);
        let limits = limits();
        let _permits = limits.reserve(&name("shop"), Allowance::default(), 3);
        let own = instances.heartbeat(&limits, UnixMillis(0));
        assert_eq!(own.destinations[&name("shop")].in_flight, 3);
        instances.take_in(vec![Instance::default(), own]);
        assert_eq!((instances.own().calls, instances.living().len()), (3, 2));
    }

    fn limits() -> DestinationLimits {
        DestinationLimits::new(LimitParams {
            concurrency: 10_000,
            concurrency_per_service: 10,
            breaker: breaker::Params::default(),
            retry_after_max: Duration::from_secs(60),
        })
    }

    fn name(name: &str) -> Destination {
        name.parse().unwrap()
    }

    fn fail(limits: &DestinationLimits, sn: &str, times: usize) {
        for _ in 0..times {
            let mut permits = limits.reserve(&name(sn), Allowance::default(), 1);
            let mut permit = permits.split_one().expect("there is a slot");
            permit.begin(Duration::from_secs(15));
            permit.failed(&"503 Service Unavailable ".repeat(50));
        }
    }

    /// All instances read all heartbeats once a second, so their size must not follow from what
    /// callers name.
    #[test]
    fn a_heartbeat_has_the_worst_destinations_and_is_bounded() {
        let (instances, limits) = (Instances::default(), limits());
        let held: Vec<_> = (0..500)
            .map(|n| limits.reserve(&name(&format!("busy{n}")), Allowance::default(), 1))
            .collect();
        (0..300).for_each(|n| fail(&limits, &format!("failed{n}"), 1));
        (0..9).for_each(|n| fail(&limits, &format!("open{n}"), 5));
        limits.hold(&name("waits"), Duration::from_secs(9));
        let size = |of: &Instance| serde_json::to_string(of).unwrap().len();
        let heartbeat = instances.heartbeat(&limits, UnixMillis(0));
        let told = &heartbeat.destinations;
        assert_eq!(heartbeat.failing(), 9, "{told:?}");
        assert_eq!(told[&name("waits")].retry_after_ms.map(|ms| ms > 8_000), Some(true));
        assert!(told.len() > 50 && told.len() <= MOST_DESTINATIONS, "{}", told.len());
        assert!(size(&heartbeat) < MOST_BYTES + 1_000, "{}", size(&heartbeat));
        drop(held);
        let idle = instances.heartbeat(&self::limits(), UnixMillis(0));
        assert!(size(&idle) < 400, "{idle:?}");
    }

    #[test]
    fn a_probe_through_another_instance_is_heard_of_once() {
        let (one, other, limits) = (Instances::default(), Instances::default(), limits());
        let beat = |of: &Instances, seen| Instance {
            seen: UnixMillis(seen),
            ..of.heartbeat(&limits, UnixMillis(0))
        };
        let shop = name("shop");
        one.probe(&shop, UnixMillis(1_000));
        assert_eq!(one.take_in(vec![beat(&one, 1_500)]), [], "its own");
        assert_eq!(other.take_in(vec![beat(&one, 2_000)]), std::slice::from_ref(&shop));
        assert_eq!(other.take_in(vec![beat(&one, 3_000), beat(&other, 3_000)]), []);
        assert_eq!(one.take_in(vec![beat(&one, 3_500), beat(&other, 3_500)]), [], "an echo");
        one.probe(&shop, UnixMillis(9_000));
        assert_eq!(
            other.take_in(vec![beat(&one, 9_500), beat(&other, 9_500)]),
            std::slice::from_ref(&shop)
        );
        assert_eq!(other.probed(&shop), Some(UnixMillis(9_000)));
        // An instance that hears of it too late does not obey.
        let late = Instances::default();
        assert_eq!(late.take_in(vec![beat(&one, 19_000)]), []);
        assert_eq!(other.take_in(vec![beat(&other, 69_000)]), []);
        assert_eq!(other.probed(&shop), None, "it is forgotten");
    }
}
