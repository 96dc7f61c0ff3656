//! Instances, and the figures of this one over time. Both are read from memory.

use std::sync::Arc;
use std::time::Duration;

pub(crate) use delayd_wire::SeriesRequest;
use delayd_wire::{
    ConfigReloads, DiskSpace, InstanceDetail, InstanceGetRequest, InstanceListRequest,
    InstanceShown, Instances, LogLines, Series, StoreErrors, StoreOperation, StoreServer,
};

use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::metrics::{DiskMetrics, ErrorKind, LogLine, OpFigures, ServerFigures, log_figures};
use crate::sampler::{FIGURES, Point};
use axum::extract::State;

/// How far back the series goes unless the request says it.
const SPAN: Duration = Duration::from_secs(300);
const SPANS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(86_400);

/// `POST /delay/instance/list`
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Json(request): Json<InstanceListRequest>,
) -> Result<Success<Instances>, Error> {
    let InstanceListRequest {} = request;
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
        failing: instance.failing(),
        seen_ms: instance.seen.into(),
        answers: instance.id == api.instances.id(),
    };
    let instances = api.instances.living().iter().map(shown).collect();
    Ok(Success::of(Instances { instances }))
}

/// `POST /delay/instance/get`
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<InstanceGetRequest>,
) -> Result<Success<InstanceDetail>, Error> {
    let InstanceGetRequest {} = request;
    let (metrics, now) = (&api.metrics, api.clock.now());
    let (reloads, log) = (metrics.config.reloads(), log_figures());
    let servers = metrics.store.servers.as_ref().and_then(|servers| servers.now());
    let server =
        |server: ServerFigures| StoreServer { name: server.name.to_string(), away: server.is_away };
    let (ago, error) = reloads.last.unzip();
    let error = error.flatten();
    let line = |LogLine { age, is_error, message }| delayd_wire::LogLine {
        at_ms: (now - age).into(),
        level: if is_error { "error" } else { "warn" }.to_owned(),
        message,
    };
    Ok(Success::of(InstanceDetail {
        id: api.instances.id().to_owned(),
        store: api.store.kind().to_owned(),
        clock_offset_ms: metrics.worker.clock_offset_ms(),
        clock_jumps: metrics.worker.clock_jumps.get(),
        settles_pending: u64::try_from(metrics.worker.settles_pending.get()).unwrap_or(0),
        operations: metrics.store.figures().into_iter().map(operation).collect(),
        servers: servers.unwrap_or_default().into_iter().map(server).collect(),
        disk: metrics.store.disk.as_ref().map(disk),
        reloads: ConfigReloads {
            taken: reloads.taken,
            refused: reloads.refused,
            last_ms: ago.map(|ago| (now - ago).into()),
            in_force: error.is_none(),
            error: error.and_then(|error| caller.content(error)),
        },
        log: LogLines {
            errors: log.errors,
            warnings: log.warnings,
            last: caller.content(log.last.into_iter().map(line).collect()),
        },
    }))
}

fn operation(OpFigures { op, recent, errors }: OpFigures) -> StoreOperation {
    let error =
        |(kind, count): (ErrorKind, u64)| StoreErrors { kind: kind.as_str().to_owned(), count };
    StoreOperation {
        op: op.as_str().to_owned(),
        calls: recent.count,
        p50_ms: recent.p50.map(millis),
        p99_ms: recent.p99.map(millis),
        errors: errors.into_iter().map(error).collect(),
    }
}

fn disk(disk: &DiskMetrics) -> DiskSpace {
    let ((free_bytes, reserve_bytes), fsyncs) = (disk.space(), disk.recent_fsyncs());
    DiskSpace {
        free_bytes,
        reserve_bytes,
        fsyncs: fsyncs.count,
        fsync_p50_ms: fsyncs.p50.map(millis),
        fsync_p99_ms: fsyncs.p99.map(millis),
    }
}

fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1_000.0
}

/// `POST /delay/series`
pub(crate) async fn series(
    State(api): State<Arc<Api>>,
    Json(request): Json<SeriesRequest>,
) -> Result<Success<Series>, Error> {
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
