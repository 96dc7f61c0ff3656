//! Instances, and the figures of this one over time. Both are read from memory.

use std::sync::Arc;
use std::time::Duration;

use delayd_wire::{InstanceListRequest, InstanceShown, Instances, Series, Span};

use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::api::wire::json;
use crate::sampler::{FIGURES, Point};

pub(crate) type SeriesRequest = delayd_wire::SeriesRequest<Span>;

/// How far back the series goes unless the request says it.
const SPAN: Duration = Duration::from_secs(300);
const SPANS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(86_400);

/// `POST /delay/instance/list`
pub(crate) async fn list(
    api: Arc<Api>,
    Routed { request, .. }: Routed,
) -> Result<Success<Instances>, Error> {
    let InstanceListRequest {} = json::read(request.body())?;
    let shown = |instance: &crate::store::Instance| InstanceShown {
        id: instance.id.clone(),
        name: instance.name.clone(),
        version: instance.version.clone(),
        started_ms: instance.started.into(),
        address: instance.address.clone(),
        cpu: instance.cpu,
        memory_bytes: instance.memory,
        in_flight: instance.calls,
        workers: instance.has_workers,
        seen_ms: instance.seen.into(),
        answers: instance.id == api.instances.id(),
    };
    let instances = api.instances.living().iter().map(shown).collect();
    Ok(Success::of(Instances { instances }))
}

/// `POST /delay/series`
pub(crate) async fn series(
    api: Arc<Api>,
    Routed { request, .. }: Routed,
) -> Result<Success<Series>, Error> {
    let request: SeriesRequest = json::read(request.body())?;
    let span = request.span.map_or(Ok(SPAN), |span| within(span, "span", SPANS))?;
    let history = api.sampled.history();
    let (step, points) = history.since(span);
    Ok(Success::of(shown(step, points)))
}

/// Steps of the history as an answer shows them.
pub(super) fn shown<'a>(step: Duration, points: impl Iterator<Item = &'a Point>) -> Series {
    let point =
        |point: &Point| std::iter::once(point.at.0.unsigned_abs()).chain(point.values).collect();
    Series {
        step_ms: step.as_millis() as u64,
        figures: FIGURES.map(str::to_owned).to_vec(),
        points: points.map(point).collect(),
    }
}
