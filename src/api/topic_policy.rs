//! `POST /delay/topic/set`: what a topic asks for instead of the configuration.
//!
//! Fields that are given are set, the others stay; those named in `reset` follow the configuration again.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::body::JsonBody;
use super::envelope::Success;
use super::error::Error;
use super::fields::{AtMost, Name, Number, object, within};
use super::json::{self, required};
use super::new_task::{self, MAX_ATTEMPTS, TIMEOUT};
use super::openapi::values::TopicName;
use super::topic::{self, Shown};
use crate::rate::Rate;
use crate::retry::Backoff;
use crate::span::Span;
use crate::store::{Registered, TopicEntry, Topics};
use crate::task::{MisfirePolicy, Mode, Topic, TopicPolicy};

const CONCURRENCY: RangeInclusive<u32> = 1..=1_000_000;
const COUNT: RangeInclusive<u32> = 1..=4_000_000_000;
const KEEP: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3650 * 86_400);
const STATUSES: RangeInclusive<u32> = 300..=599;
/// Each of them once.
const MAX_STATUSES: usize = 300;
const MAX_RESET: usize = 16;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TopicSetRequest)]
pub(super) struct Request<'a> {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// Lanes, on creation only.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 256)]
    shards: Option<Number>,
    /// How failed tasks are tried again.
    #[serde(borrow, default, deserialize_with = "object")]
    retry: Option<Retry<'a>>,
    /// Of one call: 100 ms to 10 min.
    timeout: Option<Span>,
    /// What `auto` means here.
    mode: Option<Mode>,
    /// The most calls in a time, per instance.
    rate: Option<Rate>,
    /// The most calls at a time, per instance.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    concurrency: Option<Number>,
    /// The most waiting and leased tasks.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 4_000_000_000.0)]
    quota: Option<Number>,
    /// How long, and how many, ended tasks can be read.
    #[serde(default, deserialize_with = "object")]
    history: Option<History>,
    /// What becomes of tasks that fell due in a pause.
    misfire: Option<MisfirePolicy>,
    /// As /pause and /resume.
    paused: Option<bool>,
    /// What follows the configuration again.
    #[schema(value_type = Option<Vec<Setting>>)]
    reset: Option<AtMost<Setting, MAX_RESET>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry<'a> {
    /// Calls before a task is dead.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    max_attempts: Option<Number>,
    /// The wait between attempts.
    #[serde(borrow)]
    #[schema(value_type = Option<Backoff>)]
    backoff: Option<&'a RawValue>,
    /// Answers that end a task at once: 300 to 599.
    #[schema(value_type = Option<Vec<u32>>)]
    final_statuses: Option<AtMost<Number, MAX_STATUSES>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    /// 1 minute to 3650 days.
    keep: Option<Span>,
    /// How many.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 4_000_000_000.0)]
    max: Option<Number>,
}

/// What can follow the configuration again.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Setting {
    Retry,
    Timeout,
    Mode,
    Rate,
    Concurrency,
    Quota,
    History,
    Misfire,
}

/// `POST /delay/topic/set`
pub(super) async fn set(State(api): State<Arc<Api>>, JsonBody(body): JsonBody) -> Result<Success<Shown>, Error> {
    api.check_accepting()?;
    let request: Request<'_> = json::read(&body)?;
    let shards =
        request.shards.map(|shards| shards.whole("shards", 1..=u32::from(TopicEntry::MAX_SHARDS))).transpose()?;
    let shards = shards.map(|shards| u16::try_from(shards).expect("just checked to be at most 256"));
    let changes = Changes::read(&request)?;
    let paused = request.paused;
    let Name(topic) = required(request.topic, "topic")?;

    let known = created(&api, &topic, shards).await?;
    let policy = changes.applied_to(&known.policy);
    if policy != *known.policy && !api.store.set_policy(&topic, &policy).await? {
        return Err(Error::no_topic());
    }
    if let Some(paused) = paused {
        topic::set_paused(&api, &topic, paused, None).await?;
    }
    api.topics.refresh().await?;
    tracing::info!(%topic, "The policy of topic {topic} was set by hand");
    topic::show(&api, api.topic(&topic).await?).await.map(Success::of)
}

/// The topic, with so many lanes if it is new. The number of an existing one cannot be changed: ids name their lanes by it.
async fn created(api: &Api, topic: &Topic, shards: Option<u16>) -> Result<Registered, Error> {
    api.topics.refresh().await?;
    let known = api.topics.ensure_with(topic, shards.unwrap_or(1)).await?;
    match shards {
        Some(shards) if shards != known.entry.shards => Err(Error::Invalid(format!(
            "shards: the topic was created with {}, and that cannot be changed",
            known.entry.shards
        ))),
        _ => Ok(known),
    }
}

/// Whether everything in the request is in its range.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn check(request: &Request<'_>) -> Result<(), Error> {
    Changes::read(request).map(drop)
}

/// What a request sets.
struct Changes {
    given: TopicPolicy,
    reset: Vec<Setting>,
}

impl Changes {
    fn read(request: &Request<'_>) -> Result<Self, Error> {
        let count = |number: Option<Number>, field: &str, range| number.map(|n| n.whole(field, range)).transpose();
        let retry = request.retry.as_ref();
        let history = request.history.as_ref();
        let final_statuses = retry.and_then(|retry| retry.final_statuses.as_ref()).map(|AtMost(statuses)| {
            let read = |status: &Number| {
                let status = status.whole("retry.final_statuses", STATUSES)?;
                Ok::<_, Error>(u16::try_from(status).expect("just checked to be at most 599"))
            };
            statuses.iter().map(read).collect::<Result<Vec<_>, _>>()
        });
        let keep = history.and_then(|history| history.keep).map(|keep| within(keep, "history.keep", KEEP));
        let timeout = request.timeout.map(|timeout| within(timeout, "timeout", TIMEOUT));
        let concurrency = count(request.concurrency, "concurrency", CONCURRENCY)?;
        let given = TopicPolicy {
            max_attempts: count(retry.and_then(|retry| retry.max_attempts), "retry.max_attempts", MAX_ATTEMPTS)?,
            backoff: retry
                .and_then(|retry| retry.backoff)
                .map(|raw| new_task::backoff(raw, "retry.backoff"))
                .transpose()?,
            final_statuses: final_statuses.transpose()?,
            timeout: timeout.transpose()?.map(Span),
            mode: request.mode,
            rate: request.rate,
            concurrency: concurrency.map(|concurrency| concurrency as usize),
            quota: count(request.quota, "quota", COUNT)?.map(u64::from),
            history_keep: keep.transpose()?.map(Span),
            history_max: count(history.and_then(|history| history.max), "history.max", COUNT)?.map(u64::from),
            misfire: request.misfire,
        };
        Ok(Self { given, reset: request.reset.as_ref().map(|AtMost(reset)| reset.clone()).unwrap_or_default() })
    }

    fn applied_to(self, before: &TopicPolicy) -> TopicPolicy {
        let Self { given, reset } = self;
        let mut policy = before.clone();
        for setting in reset {
            match setting {
                Setting::Retry => (policy.max_attempts, policy.backoff, policy.final_statuses) = (None, None, None),
                Setting::Timeout => policy.timeout = None,
                Setting::Mode => policy.mode = None,
                Setting::Rate => policy.rate = None,
                Setting::Concurrency => policy.concurrency = None,
                Setting::Quota => policy.quota = None,
                Setting::History => (policy.history_keep, policy.history_max) = (None, None),
                Setting::Misfire => policy.misfire = None,
            }
        }
        TopicPolicy {
            max_attempts: given.max_attempts.or(policy.max_attempts),
            backoff: given.backoff.or(policy.backoff),
            final_statuses: given.final_statuses.or(policy.final_statuses),
            timeout: given.timeout.or(policy.timeout),
            mode: given.mode.or(policy.mode),
            rate: given.rate.or(policy.rate),
            concurrency: given.concurrency.or(policy.concurrency),
            quota: given.quota.or(policy.quota),
            history_keep: given.history_keep.or(policy.history_keep),
            history_max: given.history_max.or(policy.history_max),
            misfire: given.misfire.or(policy.misfire),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(json: &str) -> Result<Changes, Error> {
        Changes::read(&json::read(json.as_bytes()).unwrap())
    }

    #[test]
    fn what_is_given_is_set_and_the_rest_stays() {
        let before = TopicPolicy { quota: Some(7), max_attempts: Some(2), ..TopicPolicy::default() };
        let policy = changes(r#"{"topic":"t","rate":"100/s","history":{"max":5}}"#).unwrap().applied_to(&before);
        assert_eq!(policy, TopicPolicy { rate: "100/s".parse().ok(), history_max: Some(5), ..before });
    }

    #[test]
    fn what_is_reset_follows_the_configuration_unless_it_is_given_as_well() {
        let before = TopicPolicy {
            quota: Some(7),
            max_attempts: Some(2),
            timeout: Some(Span::seconds(1)),
            ..Default::default()
        };
        let json = r#"{"topic":"t","reset":["retry","timeout","quota"],"quota":9}"#;
        assert_eq!(changes(json).unwrap().applied_to(&before), TopicPolicy { quota: Some(9), ..Default::default() });
    }

    #[test]
    fn an_array_is_no_object() {
        let check = |json: &str, says: &str| {
            let said = json::read::<Request<'_>>(json.as_bytes()).err().expect(json).to_string();
            assert_eq!(said, says);
        };
        check(r#"{"history":["1h",5]}"#, "history: must be an object, not sequence");
        check(r#"{"retry":[1,null,null]}"#, "retry: must be an object, not sequence");
        let request: Request<'_> = json::read(br#"{"retry":null,"history":{"max":5}}"#).unwrap();
        assert!(request.retry.is_none() && request.history.is_some());
    }

    #[test]
    fn ranges_are_kept() {
        let check = |json: &str, says: &str| {
            let said = changes(json).err().expect(json).to_string();
            assert!(said.contains(says), "{json}: {said}");
        };
        check(r#"{"retry":{"max_attempts":0}}"#, "retry.max_attempts: must be a whole number from 1 to 1000");
        check(r#"{"retry":{"backoff":{"kind":"fixed"}}}"#, "retry.backoff: every is missing");
        check(r#"{"retry":{"final_statuses":[200]}}"#, "retry.final_statuses: must be a whole number from 300 to 599");
        check(r#"{"timeout":"99ms"}"#, "timeout: must be from 100ms to 10m");
        check(r#"{"concurrency":0}"#, "concurrency: must be a whole number from 1");
        check(r#"{"quota":0.5}"#, "quota: must be a whole number from 1");
        check(r#"{"history":{"keep":1}}"#, "history.keep: must be from 1m to 3650d");
    }
}
