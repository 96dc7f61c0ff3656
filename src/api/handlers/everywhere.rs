//! The state of a destination on all instances. Each instance has breakers and limits of its own,
//! and tells the others in its heartbeats.

use delayd_wire::{DestinationOnInstance, RecentCalls};

use crate::api::state::Api;
use crate::instances;
use crate::limits::Detail;
use crate::model::clock::UnixMillis;
use crate::model::task::Destination;
use crate::store::DestinationState;

/// The state of a destination on all instances together, and on each that has called it lately.
pub(super) struct Everywhere {
    pub(super) together: DestinationState,
    /// Empty while only one instance lives.
    pub(super) each: Vec<DestinationOnInstance>,
    /// How many of them keep calls waiting.
    pub(super) stopped: usize,
}

/// `own` is the state on this instance. The last error is left out unless the caller `sees_errors`.
pub(super) fn everywhere(
    api: &Api,
    sn: &Destination,
    own: Detail,
    sees_errors: bool,
) -> Everywhere {
    let hide = |state: DestinationState| DestinationState {
        last_error: state.last_error.filter(|_| sees_errors),
        ..state
    };
    let own = hide(instances::state(own, api.clock.now()));
    let living = api.instances.living();
    if living.len() < 2 {
        let stopped = own.is_stopped().into();
        return Everywhere { together: own, each: Vec::new(), stopped };
    }
    let now = store_now(api);
    let each: Vec<(DestinationState, DestinationOnInstance)> = living
        .iter()
        .filter_map(|one| {
            let answers = one.id == api.instances.id();
            let (state, seen, probed) = if answers {
                let is_known = instances::has_calls(&own);
                (is_known.then(|| own.clone())?, now, api.instances.probed(sn))
            } else {
                let state = hide(one.destinations.get(sn)?.clone());
                (aged(state, now, one.seen), one.seen, one.probes.get(sn).copied())
            };
            let (id, name) = (one.id.clone(), one.name.clone());
            let shown = shown(state.clone(), (id, name, answers), seen, probed);
            Some((state, shown))
        })
        .collect();
    let (states, each): (Vec<_>, Vec<_>) = each.into_iter().unzip();
    let stopped = states.iter().filter(|state| state.is_stopped()).count();
    Everywhere { together: states.into_iter().reduce(worse).unwrap_or(own), each, stopped }
}

/// The store's now. Heartbeats and probes have its times.
pub(in crate::api::handlers) fn store_now(api: &Api) -> UnixMillis {
    UnixMillis(api.clock.now().0.saturating_add(api.metrics.worker.clock_offset_ms()))
}

/// The state, whose times began to run out at `seen`.
fn aged(state: DestinationState, now: UnixMillis, seen: UnixMillis) -> DestinationState {
    let left = |ms: u64| ms.saturating_sub(now.since(seen).as_millis() as u64);
    DestinationState {
        probes_in_ms: state.probes_in_ms.map(left),
        retry_after_ms: state.retry_after_ms.map(left).filter(|ms| *ms > 0),
        ..state
    }
}

fn worse(one: DestinationState, other: DestinationState) -> DestinationState {
    let (last_error, last_error_at) = match other.last_error_at > one.last_error_at {
        true => (other.last_error, other.last_error_at),
        false => (one.last_error, one.last_error_at),
    };
    DestinationState {
        breaker: one.breaker.max(other.breaker),
        probes_in_ms: one.probes_in_ms.max(other.probes_in_ms),
        in_flight: one.in_flight + other.in_flight,
        concurrency: one.concurrency + other.concurrency,
        rate: one.rate.or(other.rate),
        retry_after_ms: one.retry_after_ms.max(other.retry_after_ms),
        no_access_token: one.no_access_token.or(other.no_access_token),
        last_error,
        last_error_at,
        calls: one.calls + other.calls,
        failures: one.failures + other.failures,
        p50_ms: one.p50_ms.max(other.p50_ms),
        p99_ms: one.p99_ms.max(other.p99_ms),
    }
}

fn shown(
    state: DestinationState,
    (instance, name, answers): (String, String, bool),
    seen: UnixMillis,
    probed: Option<UnixMillis>,
) -> DestinationOnInstance {
    DestinationOnInstance {
        instance,
        name,
        answers,
        seen_ms: seen.into(),
        breaker: state.breaker,
        probes_in_ms: state.probes_in_ms,
        in_flight: state.in_flight,
        concurrency: state.concurrency,
        recent: recent(&state),
        rate: state.rate,
        retry_after_ms: state.retry_after_ms,
        no_access_token: state.no_access_token,
        last_error: state.last_error,
        last_error_ms: state.last_error_at.map(Into::into),
        probed_ms: probed.map(Into::into),
    }
}

pub(super) fn recent(of: &DestinationState) -> RecentCalls {
    let DestinationState { calls, failures, p50_ms, p99_ms, .. } = *of;
    RecentCalls { calls, failures, p50_ms, p99_ms }
}
