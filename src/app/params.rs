//! Derives the `Params` of each part from the settings.

use std::net::SocketAddr;
use std::time::Duration;

use crate::instances::Instances;
use crate::limits::{Allowance, LimitParams};
use crate::metrics::Metrics;
use crate::model::clock::Clock;
use crate::model::origin::Origin;
use crate::outcome::Policy;
use crate::settings::{Parsed, Settings, Topology, TraceHeader};
use crate::store::{embedded, redis};
use crate::{api, callback, instances, maintenance, sampler, tls, topic, trace, worker};

/// A number of concurrent calls or connections that is enough for most uses. A lower limit causes a
/// warning.
const AMPLE: usize = 1_024;
/// The time between two safety polls, and between two samples.
const POLL_EVERY: Duration = Duration::from_secs(1);

pub(super) fn policy(settings: &Settings) -> Policy {
    let retry = &settings.callback.retry;
    Policy { max_attempts: retry.max_attempts, backoff: retry.backoff.clone() }
}

pub(super) fn embedded(settings: &Settings, clock: &Clock) -> embedded::Params {
    let embedded = &settings.store.embedded;
    embedded::Params {
        path: embedded.path.clone(),
        reserve: embedded.reserve.bytes() as u64,
        clock: clock.clone(),
    }
}

pub(super) fn redis(settings: &Settings, clock: &Clock) -> redis::Params {
    let redis = &settings.store.redis;
    redis::Params {
        topology: match redis.topology {
            Topology::Standalone => redis::Topology::Standalone,
            Topology::Sentinel => {
                let (username, password) = redis.urls[0].sentinel_login();
                redis::Topology::Sentinel {
                    master_name: redis.master_name.clone(),
                    username,
                    password,
                }
            }
            Topology::Cluster => redis::Topology::Cluster,
        },
        urls: redis.urls.iter().map(|url| url.expose().to_owned()).collect(),
        tls: redis.tls.files(),
        key_prefix: redis.key_prefix.clone(),
        timeout: redis.timeout.0,
        wait_replicas: redis.wait_replicas,
        breaker: redis.breaker.clone(),
        clock: clock.clone(),
        id_outage: redis::ID_OUTAGE,
    }
}

pub(super) fn topic(settings: &Settings) -> topic::Params {
    topic::Params { max_topics: settings.limits.topics }
}

/// The objective applies from now on.
pub(super) fn set_objective(settings: &Settings, metrics: &Metrics) {
    metrics.lateness.set_objective(settings.objective.lateness.0, settings.objective.target);
}

pub(super) fn services(settings: &Settings) -> Vec<callback::ServiceParams> {
    let services = settings.services.iter();
    services
        .map(|(name, service)| callback::ServiceParams {
            name: name.clone(),
            endpoints: service
                .endpoints
                .iter()
                .map(|endpoint| endpoint.as_str().to_owned())
                .collect(),
            allowance: Allowance { concurrency: service.concurrency, rate: service.rate },
            success: service.success.clone(),
            secrets: service.secrets.iter().map(|secret| secret.0.clone()).collect(),
            credentials: service.credentials(),
        })
        .collect()
}

pub(super) fn unlisted(settings: &Settings) -> callback::Unlisted {
    callback::Unlisted {
        hosts: settings.callback.allow_hosts.iter().map(|host| host.0.clone()).collect(),
        deny_private: settings.callback.deny_private_hosts,
        fallback: settings.services_fallback.dns.clone(),
    }
}

pub(super) fn tokens(settings: &Settings) -> Vec<api::TokenParams> {
    let tokens = settings.http.auth.tokens.iter();
    tokens
        .map(|token| api::TokenParams {
            name: token.name.clone(),
            hash: token.token_sha256.0,
            scopes: token.scopes.iter().map(|scope| scope.0).collect(),
            topics: token.topics.iter().map(|topic| topic.0.clone()).collect(),
            rate: token.rate,
        })
        .collect()
}

pub(super) fn public_origins(settings: &Settings) -> Vec<Origin> {
    settings.http.public_origins.iter().map(|origin| origin.0.clone()).collect()
}

pub(super) fn client(settings: &Settings, clock: &Clock) -> callback::Params {
    callback::Params {
        connect_timeout: settings.callback.connect_timeout.0,
        final_statuses: settings.callback.retry.final_statuses.clone(),
        clock: clock.clone(),
    }
}

/// How many calls may run at a time. Each needs an open file, and the API and the store need some.
pub(super) fn calls(settings: &Settings, open_files: u64) -> usize {
    settings.callback.concurrency.min(half(open_files))
}

fn half(open_files: u64) -> usize {
    usize::try_from(open_files / 2).unwrap_or(usize::MAX).max(16)
}

/// The warnings about too few open files, as the start logs them.
pub(super) fn open_file_warnings(settings: &Settings, open_files: u64) -> Vec<String> {
    let connections = connections(calls(settings, open_files), open_files);
    let warnings = [too_few_calls(settings, open_files), too_few_connections(connections)];
    warnings.into_iter().flatten().collect()
}

fn too_few_calls(settings: &Settings, open_files: u64) -> Option<String> {
    let (wanted, most) = (settings.callback.concurrency, half(open_files));
    is_too_few(wanted, most).then(|| {
        format!(
            "callback.concurrency: expected at most half of the open-file limit, {most}, got \
             {wanted}. At most {most} calls run at a time; raise the limit (ulimit -n), or \
             lower the setting"
        )
    })
}

fn too_few_connections(most: usize) -> Option<String> {
    (most < AMPLE).then(|| {
        format!(
            "The open-file limit allows at most {most} connections at a time; further ones wait. \
             Raise the limit (ulimit -n)"
        )
    })
}

fn log(warning: Option<String>) {
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
}

pub(super) fn limits(settings: &Settings, open_files: u64) -> LimitParams {
    log(too_few_calls(settings, open_files));
    LimitParams {
        concurrency: calls(settings, open_files),
        concurrency_per_service: settings.callback.concurrency_per_service,
        breaker: settings.callback.breaker.clone(),
        retry_after_max: settings.callback.retry_after_max.0,
    }
}

/// Whether to warn that only `most` calls are possible: the operator asked for more, or it is very
/// little. The default is more than most need.
fn is_too_few(wanted: usize, most: usize) -> bool {
    let is_default = || {
        Settings::load(&[], &[], std::iter::empty()).is_ok_and(|d| d.callback.concurrency == wanted)
    };
    wanted > most && (most < AMPLE || !is_default())
}

/// The limit of connections: half of the open files that `calls` leaves. The rest is for the store
/// and for idle callback connections.
fn connections(calls: usize, open_files: u64) -> usize {
    let files = usize::try_from(open_files).unwrap_or(usize::MAX);
    (files.saturating_sub(calls) / 2).max(16)
}

pub(super) fn server(calls: usize, open_files: u64, drain: Duration) -> api::ServerParams {
    let defaults = api::ServerParams { drain, ..api::ServerParams::default() };
    let most = connections(calls, open_files);
    log(too_few_connections(most));
    api::ServerParams { max_connections: most.min(defaults.max_connections), ..defaults }
}

pub(super) fn instance(
    settings: &Settings,
    address: SocketAddr,
    clock: &Clock,
) -> instances::Params {
    instances::Params {
        address: address.to_string(),
        started: clock.now(),
        has_workers: settings.worker.enabled,
    }
}

pub(super) fn trace(settings: &Settings, instances: &Instances) -> trace::Params {
    let trace = &settings.trace;
    let header = |Parsed(header): &Parsed<TraceHeader>| (header.name.clone(), header.value.clone());
    trace::Params {
        endpoint: trace.endpoint.as_ref().map(ToString::to_string),
        headers: trace.headers.iter().map(header).collect(),
        timeout: trace.timeout.0,
        sample_ratio: trace.sample_ratio,
        continue_below: trace.continue_below.0,
        instance: instances.id().to_string(),
    }
}

pub(super) fn sampler(settings: &Settings) -> sampler::Params {
    sampler::Params { has_workers: settings.worker.enabled, every: POLL_EVERY }
}

pub(super) fn maintenance(settings: &Settings) -> maintenance::Params {
    let history = &settings.history;
    maintenance::Params {
        keep: history.keep.0,
        keep_of_topic: history.max_per_topic,
        keep_in_all: history.max,
        remove_contents: (!history.contents).then(|| contents_after(settings)),
    }
}

/// How long after its end a task loses its content: longer than the Redis store may send its add
/// again.
fn contents_after(settings: &Settings) -> Duration {
    Duration::from_secs(60) + 4 * settings.store.redis.timeout.0
}

pub(super) fn worker(settings: &Settings) -> worker::Params {
    worker::Params {
        enabled: settings.worker.enabled,
        lease: settings.worker.lease.0,
        idle_stop: settings.worker.idle_stop.0,
        claim_batch: settings.worker.claim_batch,
        policy: policy(settings),
        timeout: settings.callback.timeout.0,
        noted: settings.history.attempts,
        poll_every: POLL_EVERY,
    }
}

/// Long polls may use half of the `connections`, so that adds and acks always get through.
pub(super) fn api(settings: &Settings, connections: usize) -> api::Params {
    let limits = &settings.limits;
    let defaults = api::Params::new(policy(settings));
    api::Params {
        body_limit: limits.body.bytes(),
        content_limit: limits.content.bytes(),
        batch_limit: limits.batch,
        batch_body_limit: limits.batch_body.bytes(),
        max_delay: limits.max_delay.0,
        idempotency_window: limits.idempotency_window.0,
        bodies: limits.bodies.bytes(),
        waiters: defaults.waiters.min(connections / 2),
        ..defaults
    }
}

/// TLS of the port; `None` if it is not set.
pub(super) fn port(settings: &Settings) -> Result<Option<tls::TlsServer>, tls::InvalidFile> {
    settings.http.tls.files().map(tls::TlsServer::new).transpose()
}

/// Raises the limit of open files of this process as far as allowed, and returns it; `u64::MAX` if
/// there is no limit.
pub(super) fn raise_open_file_limit() -> u64 {
    rlimit::increase_nofile_limit(u64::MAX)
        .or_else(|_| rlimit::Resource::NOFILE.get_soft())
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_capped_by_the_open_file_limit() {
        let settings =
            Settings::load(&[], &["callback.concurrency=1000".into()], std::iter::empty()).unwrap();
        let check = |open_files: u64, calls: usize| {
            assert_eq!(limits(&settings, open_files).concurrency, calls)
        };
        check(u64::MAX, 1_000);
        check(1_048_576, 1_000);
        check(1_024, 512);
    }

    /// A limit of 20000 was logged twice at each start, though nothing had to be done.
    #[test]
    fn a_limit_is_told_where_something_should_be_done() {
        let check = |wanted: usize, most: usize, told: bool| {
            assert_eq!(is_too_few(wanted, most), told, "{wanted} {most}")
        };
        check(16_384, 16_384, false);
        check(16_384, 10_000, false);
        check(16_384, 512, true);
        check(20_000, 10_000, true);
        check(500, 512, false);
    }

    /// `delayd check` did not mention the limit of open files.
    #[test]
    fn a_check_gives_the_warnings_of_a_start() {
        let settings = Settings::load(&[], &[], std::iter::empty()).unwrap();
        let check = |open_files: u64, calls: usize, warnings: usize| {
            assert_eq!(super::calls(&settings, open_files), calls);
            assert_eq!(open_file_warnings(&settings, open_files).len(), warnings, "{open_files}");
        };
        check(u64::MAX, 16_384, 0);
        check(20_000, 10_000, 0);
        check(1_000, 500, 2);
    }

    #[test]
    fn connections_are_capped_by_what_the_calls_leave_of_the_open_files() {
        let check = |calls: usize, open_files: u64, connections: usize| {
            assert_eq!(
                server(calls, open_files, Duration::ZERO).max_connections,
                connections,
                "{calls} {open_files}"
            );
        };
        check(16_384, u64::MAX, 10_000);
        check(16_384, 65_536, 10_000);
        check(512, 1_024, 256);
        check(128, 256, 64);
        check(16, 20, 16);
    }
}
