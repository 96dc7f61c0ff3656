//! `POST /delay/forecast`: the waiting tasks of all topics by service and due time, with the
//! callbacks that the deployment can make.
//!
//! `prediction` estimates what can be called.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use delayd_wire::{ForecastFigures, ServiceForecast, ServiceForecasts};

use crate::api::forecasts::{Sums, WaitingTally};
use crate::api::handlers::everywhere::{Everywhere, everywhere};
use crate::api::handlers::topic::list::Pattern;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::parsed;
use crate::limits::Allowance;
use crate::model::task::Destination;
use crate::sampler::SampledDestination;
use crate::store::DestinationState;

mod prediction;

/// The most services of an answer.
const MOST_SERVICES: usize = 20;

pub(crate) use delayd_wire::ServiceForecastsRequest as Request;

/// `POST /delay/forecast`
pub(crate) async fn forecast(
    State(api): State<Arc<Api>>,
    Json(request): Json<Request>,
) -> Result<Success<ServiceForecasts>, Error> {
    let Request { span, matches } = request;
    let span = span.unwrap_or_default();
    let pattern: Option<Pattern> = matches.map(|text| parsed(&text, "match")).transpose()?;
    let counted = api.forecasts.of(api.forecast_sources(), span).await?;
    let sums = counted.sums(|topic| pattern.as_ref().is_none_or(|pattern| pattern.matches(topic)));
    let workers = api.sampled.snapshots().borrow().workers;
    let (buckets, bucket_ms) = span.buckets();
    let Sums { topics, seen, is_complete, by_destination } = sums;
    let all =
        by_destination.into_iter().map(|(sn, tally)| WaitingService::new(&api, sn, tally, workers));
    let mut services: Vec<WaitingService> = all.collect();
    let every = Allowance { concurrency: usize::MAX, rate: None };
    let slots = (api.limits.slots(every) * workers) as f64;
    let bucket = Duration::from_millis(bucket_ms);
    let total = total(&services, slots, (buckets, bucket));
    services.sort_by_key(|service| {
        (Reverse(service.tally.within()), Reverse(service.tally.rest), service.sn.clone())
    });
    let called = services.iter().filter(|service| !service.sn.is_pull()).count();
    let mut left = MOST_SERVICES;
    let mut is_shown = |service: &WaitingService| {
        service.sn.is_pull() || {
            let is_shown = left > 0;
            left = left.saturating_sub(1);
            is_shown
        }
    };
    services.retain(|service| is_shown(service));
    Ok(Success::of(ServiceForecasts {
        at_ms: counted.at.into(),
        span,
        bucket_ms,
        complete: is_complete,
        topics,
        topics_seen: seen,
        workers: workers as u64,
        total,
        services: services.into_iter().map(|service| service.shown(bucket)).collect(),
        more_services: called.saturating_sub(MOST_SERVICES) as u64,
    }))
}

/// A service, or `@pull`, for which tasks wait.
struct WaitingService {
    sn: Destination,
    tally: WaitingTally,
    is_held: bool,
    is_configured: bool,
    /// Its state on all instances.
    state: DestinationState,
    /// The mean duration of a successful callback in seconds; 0 if it is unknown.
    mean: f64,
    /// `None` if it is unknown.
    per_second: Option<f64>,
}

impl WaitingService {
    fn new(api: &Api, sn: Destination, tally: WaitingTally, workers: usize) -> Self {
        if sn.is_pull() {
            let (mean, per_second, state) = Default::default();
            return Self {
                sn,
                tally,
                is_held: false,
                is_configured: true,
                state,
                mean,
                per_second,
            };
        }
        let allowance = api.services.get(sn.as_str()).map(|service| service.allowance());
        let label = api.metrics.sampled.label(sn.as_str());
        let mean = api.metrics.callbacks.mean_seconds(&label);
        let is_held = api.limits.is_held(&sn);
        let figures = SampledDestination::new(&sn, allowance, &api.limits);
        let own = api.limits.detail(&sn, allowance.unwrap_or_default());
        // An instance that keeps the calls waiting, for example by its breaker, makes none.
        let Everywhere { together: state, stopped, .. } = everywhere(api, &sn, own, false);
        let per_second = figures.per_second(mean, workers.saturating_sub(stopped), is_held);
        Self {
            sn,
            tally,
            is_held,
            is_configured: allowance.is_some(),
            state,
            mean: mean.unwrap_or_default(),
            per_second: Some(per_second).filter(|known| known.is_finite()),
        }
    }

    fn drain(&self, bucket: Duration) -> Option<Duration> {
        let WaitingTally { overdue, buckets, .. } = &self.tally;
        prediction::drain(*overdue, buckets, bucket, self.per_second?)
    }

    fn shown(self, bucket: Duration) -> ServiceForecast {
        let drain = self.drain(bucket);
        ServiceForecast {
            sn: self.sn.to_string(),
            held: self.is_held,
            configured: self.is_configured,
            breaker: self.state.breaker,
            retry_after_ms: self.state.retry_after_ms,
            no_access_token: self.state.no_access_token,
            figures: figures(self.tally, self.per_second, drain),
        }
    }
}

/// The sums of all services and `@pull`. No backlog is gone before that of each service is.
fn total(
    services: &[WaitingService],
    slots: f64,
    (buckets, bucket): (usize, Duration),
) -> ForecastFigures {
    let mut sum = WaitingTally { buckets: vec![0; buckets], ..WaitingTally::default() };
    services.iter().for_each(|service| sum.add(&service.tally));
    let (mut called, mut rates) = (WaitingTally::default(), Some(Vec::new()));
    let mut slowest = Some(Duration::ZERO);
    for service in services.iter().filter(|service| !service.sn.is_pull()) {
        called.add(&service.tally);
        match (&mut rates, service.per_second) {
            (Some(rates), Some(per_second)) => rates.push((per_second, service.mean)),
            _ => rates = None,
        }
        slowest = slowest.zip(service.drain(bucket)).map(|(a, b)| a.max(b));
    }
    let rates = rates.filter(|rates| !rates.is_empty());
    let per_second = rates.map(|rates| prediction::shared(&rates, slots));
    let WaitingTally { overdue, buckets, .. } = &called;
    let together = match per_second {
        Some(per_second) => prediction::drain(*overdue, buckets, bucket, per_second),
        None => Some(Duration::ZERO).filter(|_| *overdue == 0),
    };
    let drain = slowest.zip(together).map(|(slowest, together)| slowest.max(together));
    figures(sum, per_second, drain)
}

fn figures(
    WaitingTally { overdue, buckets, rest, is_cut }: WaitingTally,
    calls_per_second: Option<f64>,
    drain: Option<Duration>,
) -> ForecastFigures {
    let drain_ms = drain.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    ForecastFigures { overdue, buckets, rest, cut: is_cut, calls_per_second, drain_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(sn: &str, overdue: u64, per_second: Option<f64>, mean: f64) -> WaitingService {
        let tally = WaitingTally { overdue, buckets: vec![60, 0], rest: 1, is_cut: false };
        let sn = sn.parse().unwrap();
        let state = DestinationState::default();
        WaitingService { sn, tally, is_held: false, is_configured: true, state, mean, per_second }
    }

    fn total_of(services: &[WaitingService], slots: f64) -> ForecastFigures {
        total(services, slots, (2, Duration::from_secs(60)))
    }

    #[test]
    fn the_total_is_as_slow_as_its_slowest_service() {
        let (fast, slow) = (service("a", 20, Some(10.0), 0.1), service("b", 20, Some(2.0), 1.0));
        let pulled = service("@pull", 5, None, 0.0);
        let both = [fast, slow, pulled];
        let found = total_of(&both, 100.0);
        assert_eq!((found.overdue, found.buckets, found.rest), (45, vec![180, 0], 3));
        assert_eq!((found.calls_per_second, found.drain_ms), (Some(12.0), Some(20_000)));
        let found = total_of(&both, 1.5);
        assert_eq!(found.calls_per_second, Some(6.0), "three slots would be in use");
        assert_eq!(found.drain_ms, Some(20_000));
        let pulled = total_of(&both[2..], 1.0);
        assert_eq!((pulled.calls_per_second, pulled.drain_ms), (None, Some(0)));
    }

    #[test]
    fn an_unknown_or_endless_service_makes_the_total_unknown() {
        let known = || service("a", 20, Some(10.0), 0.1);
        let unknown = total_of(&[known(), service("b", 1, None, 0.0)], 100.0);
        assert_eq!((unknown.calls_per_second, unknown.drain_ms), (None, None));
        let held = total_of(&[known(), service("b", 1, Some(0.0), 0.1)], 100.0);
        assert_eq!((held.calls_per_second, held.drain_ms), (Some(10.0), None));
        let empty = total_of(&[], 100.0);
        assert_eq!((empty.calls_per_second, empty.drain_ms), (None, Some(0)));
        assert_eq!(empty.buckets, [0, 0]);
    }
}
