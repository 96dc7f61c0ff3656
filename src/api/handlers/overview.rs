//! `POST /delay/whoami` and `/delay/overview`: who calls, and how the deployment is. Both are read
//! from memory.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{
    DestinationFigures, InstanceHealth, Objective, OverdueShown, Overview, OverviewRequest,
    TaskCounts, WhoAmI, WhoAmIRequest,
};

use super::everywhere::{Everywhere, everywhere};
use super::instance;
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::metrics::Metrics;
use crate::model::culprit::Culprit;
use crate::model::task::Destination;
use crate::model::token::Scope;
use crate::model::version::VERSION;
use crate::sampler::{self, Snapshot};
use crate::store::Counts;

/// The most destinations of an overview.
const MOST_DESTINATIONS: usize = 20;

/// `POST /delay/whoami`
pub(crate) async fn whoami(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<WhoAmIRequest>,
) -> Result<Success<WhoAmI>, Error> {
    let WhoAmIRequest {} = request;
    let token = caller.token();
    let scopes = token.map_or(&Scope::ALL[..], |token| &token.scopes);
    let every_topic = || vec!["*".to_owned()];
    Ok(Success::of(WhoAmI {
        token: token.map(|token| token.name.clone()),
        scopes: scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        topics: token.map_or_else(every_topic, |token| {
            token.topics.iter().map(ToString::to_string).collect()
        }),
        all_topics: caller.covers_all(),
        version: VERSION.to_owned(),
        store: api.store.kind().to_owned(),
        instance: api.instances.id().to_owned(),
        now_ms: api.clock.now().into(),
    }))
}

/// `POST /delay/overview`
pub(crate) async fn overview(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<OverviewRequest>,
) -> Result<Success<Overview>, Error> {
    let OverviewRequest {} = request;
    let snapshot = api.sampled.snapshots().borrow().clone();
    Ok(Success::of(shown(&api, &snapshot, caller.sees_content())))
}

/// The overview that a snapshot gives, with the text of errors if the caller `sees_errors`.
pub(super) fn shown(api: &Api, snapshot: &Snapshot, sees_errors: bool) -> Overview {
    let topics = api.topics.known();
    let (lateness, living) = (&api.metrics.lateness, api.instances.living());
    let (good, bad) = lateness.judged();
    let (step, last) = {
        let history = api.sampled.history();
        let (step, last) = history.last();
        (step, last.copied())
    };
    let overdue = Culprit::OF_WAITING.into_iter().zip(&snapshot.overdue);
    Overview {
        at_ms: snapshot.at.into(),
        oldest_ms: snapshot.oldest.into(),
        complete: snapshot.is_complete,
        tasks: counted(&snapshot.tasks),
        overdue: overdue
            .map(|(culprit, overdue)| OverdueShown {
                culprit: culprit.as_str().to_owned(),
                count: overdue.count,
                cut: overdue.is_cut,
                oldest_ms: overdue.oldest.map(Into::into),
                topic: overdue.topic.as_ref().map(ToString::to_string),
            })
            .collect(),
        objective: Objective {
            lateness_ms: lateness.objective().as_millis() as u64,
            target: lateness.target(),
            good,
            bad,
            late: snapshot.late,
        },
        destinations: destinations(api, snapshot, sees_errors),
        more_destinations: snapshot.destinations.len().saturating_sub(MOST_DESTINATIONS) as u64,
        topics: topics.len() as u64,
        paused_topics: topics.iter().filter(|topic| topic.paused.is_some()).count() as u64,
        instances: living.len() as u64,
        workers: snapshot.workers as u64,
        health: health(&api.metrics),
        last: instance::shown(step, last.iter()),
    }
}

/// The store's calls are those of the last minute.
fn health(metrics: &Metrics) -> InstanceHealth {
    let store = &metrics.store;
    let servers = store.servers.as_ref().and_then(|servers| servers.now()).unwrap_or_default();
    let space = store.disk.as_ref().map(|disk| disk.space());
    InstanceHealth {
        store_p99_ms: store.recent().p99.map(|p99| p99.as_micros() as f64 / 1_000.0),
        servers_away: servers.iter().filter(|server| server.is_away).count() as u64,
        disk_full: space.is_some_and(|(free, reserve)| free < reserve),
        clock_offset_ms: metrics.worker.clock_offset_ms(),
        config_refused: metrics.config.reloads().last.is_some_and(|(_, why)| why.is_some()),
    }
}

fn counted(counts: &Counts) -> TaskCounts {
    let Counts { scheduled, leased, delivered, dead, cancelled, expired, earliest } = *counts;
    let earliest_ms = earliest.map(Into::into);
    TaskCounts { scheduled, leased, delivered, dead, cancelled, expired, earliest_ms }
}

/// The destinations that are not called now, then those with most overdue tasks, then those with
/// most waiting ones.
fn destinations(api: &Api, snapshot: &Snapshot, sees_errors: bool) -> Vec<DestinationFigures> {
    let mut all: Vec<(&Destination, &sampler::SampledDestination)> =
        snapshot.destinations.iter().collect();
    let living = api.instances.living();
    let told = living.iter().flat_map(|one| &one.destinations);
    let stopped: HashSet<&Destination> =
        told.filter(|(_, state)| state.is_stopped()).map(|(sn, _)| sn).collect();
    all.sort_by_key(|(sn, figures)| {
        let is_troubled = figures.is_blocked || !figures.is_configured || stopped.contains(sn);
        Reverse((is_troubled, figures.overdue, figures.waiting))
    });
    let shown = |(sn, figures): (&Destination, &sampler::SampledDestination)| {
        let allowance = api.services.get(sn.as_str()).map(|service| service.allowance());
        let detail = api.limits.detail(sn, allowance.unwrap_or_default());
        let Everywhere { together, .. } = everywhere(api, sn, detail, sees_errors);
        DestinationFigures {
            sn: sn.to_string(),
            waiting: figures.waiting,
            overdue: figures.overdue,
            held: figures.is_held,
            configured: figures.is_configured,
            breaker: together.breaker,
            retry_after_ms: together.retry_after_ms,
            no_access_token: together.no_access_token,
            in_flight: together.in_flight as u64,
            concurrency: together.concurrency as u64,
            last_error: together.last_error,
            last_error_ms: together.last_error_at.map(Into::into),
        }
    };
    all.into_iter().take(MOST_DESTINATIONS).map(shown).collect()
}
