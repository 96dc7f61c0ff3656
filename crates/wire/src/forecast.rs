//! The forecast of each service, over all topics.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::TopicMatch;
use crate::{BreakerState, UnixMillis};

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceForecastsRequest {
    /// How far it looks ahead (default `day`).
    pub span: Option<ForecastSpan>,
    /// Only topics whose name contains this text, or begins with it if it ends with `*`. Upper and
    /// lower case are the same.
    #[serde(rename = "match")]
    #[schema(value_type = Option<TopicMatch>)]
    pub matches: Option<String>,
}

words! {

/// How far a forecast looks ahead.
#[derive(Default)]
pub enum ForecastSpan "lowercase" {
    /// An hour, in buckets of 5 minutes.
    Hour,
    /// A day, in buckets of an hour.
    #[default]
    Day,
    /// A week, in buckets of 6 hours.
    Week,
}

}

impl ForecastSpan {
    /// The number of buckets, and the length of each in milliseconds.
    pub const fn buckets(self) -> (usize, u64) {
        const MINUTE: u64 = 60_000;
        match self {
            Self::Hour => (12, 5 * MINUTE),
            Self::Day => (24, 60 * MINUTE),
            Self::Week => (28, 360 * MINUTE),
        }
    }
}

/// The waiting tasks of the topics by due time, and what the deployment can call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceForecasts {
    /// When the store counted the first tasks, by its clock. The first bucket begins then.
    pub at_ms: UnixMillis,
    pub span: ForecastSpan,
    /// The length of a bucket.
    pub bucket_ms: u64,
    /// Whether all tasks of the topics were counted. If not, each count may be too low.
    pub complete: bool,
    /// How many topics match.
    pub topics: u64,
    /// How many of them were counted. Those with most waiting tasks are counted first.
    pub topics_seen: u64,
    /// How many instances make callbacks.
    pub workers: u64,
    /// The sums over all services and `@pull`. The rate and the time are those of the services,
    /// because consumers decide when they pull.
    pub total: ForecastFigures,
    /// The services with most tasks within the span first; at most 20, and `@pull`.
    pub services: Vec<ServiceForecast>,
    /// How many more services there are. Their tasks are in `total`.
    pub more_services: u64,
}

/// The forecast of one service. What differs between instances is as in the list of destinations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceForecast {
    /// The service; `@pull` for the tasks that consumers pull.
    pub sn: String,
    /// Whether an operator holds it.
    pub held: bool,
    /// False if the configuration neither names nor allows it.
    pub configured: bool,
    #[serde(default)]
    #[schema(required = true)]
    pub breaker: BreakerState,
    /// How long its `Retry-After` lasts.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// Why there is no OAuth access token for it; only while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_access_token: Option<String>,
    pub figures: ForecastFigures,
}

/// Waiting tasks by due time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForecastFigures {
    /// The tasks that are due already.
    pub overdue: u64,
    /// The tasks that fall due in each bucket.
    pub buckets: Vec<u64>,
    /// The tasks that fall due after the last bucket.
    pub rest: u64,
    /// Whether the store stopped counting, so that there may be more.
    pub cut: bool,
    /// An estimate of how many callbacks the deployment can make in a second, by those that
    /// succeeded; 0 if the service is not called now, null if it is unknown.
    pub calls_per_second: Option<f64>,
    /// An estimate of the time until no task is overdue, with the tasks that fall due meanwhile; 0
    /// if none is overdue. Null if the rate is unknown, or if the span is too short.
    pub drain_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_as_long_as_its_name_says() {
        let lengths = ForecastSpan::ALL.map(|span| {
            let (count, bucket_ms) = span.buckets();
            assert_eq!(serde_json::to_value(span).unwrap(), span.as_str());
            count as u64 * bucket_ms / 3_600_000
        });
        assert_eq!(lengths, [1, 24, 7 * 24]);
    }
}
