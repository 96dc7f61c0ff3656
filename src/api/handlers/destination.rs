//! The calls under `/delay/destination/`: the state of destinations, holds and probes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use delayd_wire::HoldRequest;
use delayd_wire::{
    BreakerChange, BreakerState, DestinationDetail, DestinationListRequest, DestinationShown,
    Destinations, Held, Probed, Unharmed,
};

use super::everywhere::{Everywhere, everywhere, recent, store_now};
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::limits::Allowance;
use crate::metrics::Quantiles;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane};
use crate::sampler::Snapshot;
use crate::store::{Admin, Holds, Topics};
use axum::extract::State;

/// `POST /delay/destination/list`
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<DestinationListRequest>,
) -> Result<Success<Destinations>, Error> {
    let DestinationListRequest { sampled } = request;
    let DestinationCounts { waiting, holds, as_of } = match sampled.unwrap_or_default() {
        true => DestinationCounts::sampled(&api),
        false => {
            let _place = api.reading(&caller).await?;
            DestinationCounts::read(&api).await?
        }
    };
    let services: BTreeMap<Destination, Allowance> = api
        .services
        .all()
        .iter()
        .map(|service| (service.name().clone(), service.allowance()))
        .collect();
    let all: BTreeSet<&Destination> = services.keys().chain(waiting.keys()).chain(&holds).collect();
    let destinations = all
        .into_iter()
        .map(|sn| {
            let known = || api.services.get(sn.as_str()).map(|service| service.allowance());
            let allowance = services.get(sn).copied().or_else(known);
            let detail = api.limits.detail(sn, allowance.unwrap_or_default());
            let (waiting, overdue) = waiting.get(sn).copied().unwrap_or_default();
            let everywhere = everywhere(&api, sn, detail, caller.sees_content());
            let shown = shown(sn, allowance, everywhere, waiting, holds.contains(sn));
            DestinationShown { overdue: as_of.map(|_| overdue), ..shown }
        })
        .collect();
    let (unharmed, as_of_ms) = (unharmed(&api, None), as_of.map(Into::into));
    Ok(Success::of(Destinations { destinations, unharmed, as_of_ms }))
}

/// The tasks that wait for each destination, and the holds.
struct DestinationCounts {
    /// The number of waiting tasks, and of overdue ones, if they are known.
    waiting: BTreeMap<Destination, (u64, u64)>,
    holds: HashSet<Destination>,
    /// Of samples: when the oldest was read.
    as_of: Option<UnixMillis>,
}

impl DestinationCounts {
    /// The exact counts: the store looks at all lanes.
    async fn read(api: &Api) -> Result<Self, Error> {
        let lanes: Vec<Lane> =
            api.store.topics().await?.iter().flat_map(|topic| topic.entry.lanes()).collect();
        let waiting = api.store.waiting(lanes).await?.into_iter();
        let holds = api.store.holds().await?.held.into_iter().collect();
        let waiting = waiting.map(|waiting| (waiting.destination, (waiting.count, 0))).collect();
        Ok(Self { waiting, holds, as_of: None })
    }

    /// The last counts of the sampler.
    fn sampled(api: &Api) -> Self {
        let snapshot = api.sampled.snapshots().borrow().clone();
        let all = snapshot.destinations.iter();
        let waiting = all.map(|(sn, figures)| (sn.clone(), (figures.waiting, figures.overdue)));
        Self {
            waiting: waiting.collect(),
            holds: api.limits.held().into_iter().collect(),
            as_of: Some(as_of(&snapshot)),
        }
    }
}

/// When the oldest figure was read; 0 until all lanes were counted once.
fn as_of(snapshot: &Snapshot) -> UnixMillis {
    if snapshot.is_complete { snapshot.oldest } else { UnixMillis(0) }
}

/// The services that are not in trouble, except one.
fn unharmed(api: &Api, except: Option<&Destination>) -> Unharmed {
    let held: HashSet<Destination> = api.limits.held().into_iter().collect();
    // The limits are asked before the metrics: the limits call the metrics under their lock.
    let meant: HashSet<Destination> = api
        .services
        .all()
        .iter()
        .filter(|service| {
            let (sn, allowance) = (service.name(), service.allowance());
            Some(sn) != except
                && !held.contains(sn)
                && api.limits.standing(sn, allowance).breaker == BreakerState::Closed
        })
        .map(|service| service.name().clone())
        .collect();
    let is_meant = |name: &str| meant.iter().any(|sn| sn.as_str() == name);
    let Quantiles { count, p99, .. } = api.metrics.callbacks.lateness_of(is_meant);
    Unharmed { calls: count, lateness_p99_ms: p99.map(millis) }
}

fn millis(span: Duration) -> u64 {
    span.as_millis() as u64
}

fn shown(
    sn: &Destination,
    configured: Option<Allowance>,
    Everywhere { together, each, .. }: Everywhere,
    waiting: u64,
    held: bool,
) -> DestinationShown {
    DestinationShown {
        sn: sn.to_string(),
        configured: configured.is_some(),
        held,
        waiting,
        overdue: None,
        breaker: together.breaker,
        in_flight: together.in_flight,
        concurrency: together.concurrency,
        rate: configured.and_then(|allowance| allowance.rate).map(|rate| rate.to_string()),
        retry_after_ms: together.retry_after_ms,
        recent: recent(&together),
        no_access_token: together.no_access_token,
        last_error: together.last_error,
        last_error_ms: together.last_error_at.map(Into::into),
        instances: each,
    }
}

/// `POST /delay/destination/get`: what is in memory, without a look at the store.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<HoldRequest>,
) -> Result<Success<DestinationDetail>, Error> {
    let sn = service_of(request)?;
    let snapshot = api.sampled.snapshots().borrow().clone();
    let sampled = snapshot.destinations.get(&sn);
    let service = api.services.get(sn.as_str());
    let allowance = service.as_ref().map(|service| service.allowance());
    let held = api.limits.is_held(&sn);
    if sampled.is_none() && allowance.is_none() && !held {
        return Err(Error::NotFound(
            "sn: this instance knows no such service, and has counted no task that waits for it"
                .into(),
        ));
    }
    let detail = api.limits.detail(&sn, allowance.unwrap_or_default());
    let unharmed = unharmed(&api, Some(&sn));
    let (now, slots, changes) = (api.clock.now(), detail.slots, detail.changes.clone());
    let waiting = sampled.map_or(0, |figures| figures.waiting);
    let everywhere = everywhere(&api, &sn, detail, caller.sees_content());
    let probes_in_ms = everywhere.together.probes_in_ms;
    let shown = shown(&sn, allowance, everywhere, waiting, held);
    Ok(Success::of(DestinationDetail {
        sn: shown.sn,
        configured: shown.configured,
        held,
        waiting,
        overdue: sampled.map_or(0, |figures| figures.overdue),
        as_of_ms: as_of(&snapshot).into(),
        complete: snapshot.is_complete,
        cut: sampled.is_some_and(|figures| figures.is_cut),
        breaker: shown.breaker,
        probes_in_ms,
        in_flight: shown.in_flight,
        concurrency: shown.concurrency,
        slots,
        rate: shown.rate,
        success: service.map(|service| service.success().to_string()),
        retry_after_ms: shown.retry_after_ms,
        no_access_token: shown.no_access_token,
        last_error: shown.last_error,
        last_error_ms: shown.last_error_ms,
        recent: shown.recent,
        instances: shown.instances,
        unharmed,
        transitions: changes
            .into_iter()
            .map(|(to, ago)| BreakerChange { at_ms: (now - ago).into(), to })
            .collect(),
    }))
}

/// `POST /delay/destination/probe`: open breakers become half-open, on this instance now, on the
/// others when they hear of it. The probes are tasks that are due: nothing else is sent.
pub(crate) async fn probe(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<HoldRequest>,
) -> Result<Success<Probed>, Error> {
    let sn = service_of(request)?;
    let service = api.services.get(sn.as_str()).ok_or_else(no_service)?;
    let breaker = api.limits.probe(&sn);
    api.instances.probe(&sn, store_now(&api));
    tracing::info!(%sn, "Service {sn} is probed by hand");
    let detail = api.limits.detail(&sn, service.allowance());
    let Everywhere { each, .. } = everywhere(&api, &sn, detail, caller.sees_content());
    Ok(Success::of(Probed { sn: sn.to_string(), breaker, instances: each }))
}

fn no_service() -> Error {
    Error::NotFound(
        "sn: there is no such service; the configuration's [services] names them".into(),
    )
}

/// `POST /delay/destination/hold`
pub(crate) async fn hold(
    State(api): State<Arc<Api>>,
    Json(request): Json<HoldRequest>,
) -> Result<Success<Held>, Error> {
    let sn = service_of(request)?;
    if api.services.get(sn.as_str()).is_none() {
        return Err(no_service());
    }
    set_hold(&api, sn, true).await
}

/// `POST /delay/destination/release`
pub(crate) async fn release(
    State(api): State<Arc<Api>>,
    Json(request): Json<HoldRequest>,
) -> Result<Success<Held>, Error> {
    let sn = service_of(request)?;
    if api.services.get(sn.as_str()).is_none() && !api.store.holds().await?.held.contains(&sn) {
        return Err(Error::NotFound(
            "sn: there is no such service, and no destination of that name is held".into(),
        ));
    }
    set_hold(&api, sn, false).await
}

fn service_of(HoldRequest { sn }: HoldRequest) -> Result<Destination, Error> {
    if sn.is_pull() {
        return Err(Error::invalid(
            "sn: must be a service; @pull cannot be held, nor has it a state",
        ));
    }
    Ok(sn)
}

/// Stores the hold and applies it to this instance. The other instances read it within a second.
async fn set_hold(api: &Api, sn: Destination, held: bool) -> Result<Success<Held>, Error> {
    api.store.set_hold(&sn, held).await?;
    let asked = api.limits.ask_holds();
    let Holds { held: holds, released } = api.store.holds().await?;
    api.limits.set_holds(asked, holds.into_iter().collect(), released.into_iter().collect());
    if !held {
        api.limits.lift(&sn);
    }
    tracing::info!(%sn, held, "Service {sn} is {} by hand", if held { "held" } else { "released" });
    Ok(Success::of(Held { sn: sn.to_string(), held }))
}
