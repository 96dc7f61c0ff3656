//! `POST /delay/topic/set`: sets a topic's settings.
//!
//! Given fields are set, and the others stay. Settings named in `reset` follow the configuration
//! again.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use delayd_wire::{
    AtMost, Number, Span, TopicHistoryGiven, TopicRetryGiven, TopicSetting, TopicShown,
};

use crate::api::auth::Caller;
use crate::api::handlers::task::new_task::{self, MAX_ATTEMPTS, TIMEOUT};
use crate::api::handlers::topic::manage;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::model::task::{Topic, TopicHistory, TopicPolicy, TopicRetry};
use crate::store::{Registered, TopicEntry, Topics};

const CONCURRENCY: RangeInclusive<u32> = 1..=1_000_000;
const COUNT: RangeInclusive<u32> = 1..=4_000_000_000;
const KEEP: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3650 * 86_400);
const OBJECTIVE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(2 * 3600);
const STATUSES: RangeInclusive<u32> = 300..=599;

pub(crate) use delayd_wire::TopicSetRequest as Request;

/// `POST /delay/topic/set`
pub(crate) async fn set(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<TopicShown>, Error> {
    api.check_accepting()?;
    let shards = request
        .shards
        .map(|shards| shards.whole("shards", 1..=u32::from(TopicEntry::MAX_SHARDS)))
        .transpose()?;
    let shards =
        shards.map(|shards| u16::try_from(shards).expect("just checked to be at most 256"));
    let given = given(&request)?;
    let (paused, reset) =
        (request.paused, request.reset.map_or_else(Vec::new, |AtMost(reset)| reset));
    let topic = request.topic;

    let known = created(&api, &caller, &topic, shards).await?;
    let policy = known.policy.changed(reset.iter().map(|TopicSetting(name)| *name), &given);
    // Also if the topic has them already: that may be read and not confirmed yet.
    if !api.store.set_policy(&topic, &policy).await? {
        return Err(Error::no_topic());
    }
    if let Some(paused) = paused {
        manage::set_paused(&api, &topic, paused, None).await?;
    }
    api.topics.reload(&topic).await?;
    tracing::info!(%topic, "The settings of topic {topic} were set by hand");
    manage::show(&api, api.topic(&topic).await?).await.map(Success::of)
}

/// The topic, created with this number of lanes if it is new. The number cannot change later,
/// because a task's id determines its lane by it.
async fn created(
    api: &Api,
    caller: &Caller,
    topic: &Topic,
    shards: Option<u16>,
) -> Result<Registered, Error> {
    api.topics.reload(topic).await?;
    let creator = |share| caller.creator(share);
    let known = api.topics.ensure_for(topic, shards.unwrap_or(1), creator).await?;
    match shards {
        Some(shards) if shards != known.entry.shards => Err(Error::Invalid(format!(
            "shards: the topic was created with {}, which cannot be changed",
            known.entry.shards
        ))),
        _ => Ok(known),
    }
}

/// Checks the ranges of a request.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check(request: &Request) -> Result<(), Error> {
    given(request).map(drop)
}

/// The given settings, with their ranges checked.
fn given(request: &Request) -> Result<TopicPolicy, Error> {
    let count = |number: Option<Number>, field: &str, range| {
        number.map(|n| n.whole(field, range)).transpose()
    };
    Ok(TopicPolicy {
        retry: request.retry.as_ref().map(given_retry).transpose()?.unwrap_or_default(),
        timeout: request
            .timeout
            .map(|timeout| within(timeout, "timeout", TIMEOUT))
            .transpose()?
            .map(Span),
        mode: request.mode,
        rate: request.rate,
        concurrency: count(request.concurrency, "concurrency", CONCURRENCY)?
            .map(|count| count as usize),
        quota: count(request.quota, "quota", COUNT)?.map(u64::from),
        history: request.history.as_ref().map(given_history).transpose()?.unwrap_or_default(),
        misfire: request.misfire,
        lateness_objective: request
            .lateness_objective
            .map(|objective| within(objective, "lateness_objective", OBJECTIVE))
            .transpose()?
            .map(Span),
    })
}

fn given_retry(retry: &TopicRetryGiven) -> Result<TopicRetry, Error> {
    let read = |status: &Number| {
        let status = status.whole("retry.final_statuses", STATUSES)?;
        Ok::<_, Error>(u16::try_from(status).expect("just checked to be at most 599"))
    };
    let statuses =
        retry.final_statuses.as_ref().map(|AtMost(statuses)| statuses.iter().map(read).collect());
    Ok(TopicRetry {
        max_attempts: retry
            .max_attempts
            .map(|most| most.whole("retry.max_attempts", MAX_ATTEMPTS))
            .transpose()?,
        backoff: retry
            .backoff
            .clone()
            .map(|wait| new_task::backoff(wait, "retry.backoff"))
            .transpose()?,
        final_statuses: statuses.transpose()?,
    })
}

fn given_history(history: &TopicHistoryGiven) -> Result<TopicHistory, Error> {
    Ok(TopicHistory {
        keep: history.keep.map(|keep| within(keep, "history.keep", KEEP)).transpose()?.map(Span),
        max: history.max.map(|max| max.whole("history.max", COUNT)).transpose()?.map(u64::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::json;

    /// The settings after a request.
    fn changed(before: &TopicPolicy, json: &str) -> Result<TopicPolicy, Error> {
        let request: Request = json::read(json.as_bytes())?;
        let given = given(&request)?;
        let reset = request.reset.map_or_else(Vec::new, |AtMost(reset)| reset);
        Ok(before.changed(reset.iter().map(|TopicSetting(name)| *name), &given))
    }

    fn attempts(most: u32) -> TopicRetry {
        TopicRetry { max_attempts: Some(most), ..TopicRetry::default() }
    }

    #[test]
    fn what_is_given_is_set_and_the_rest_stays() {
        let before = TopicPolicy { quota: Some(7), retry: attempts(2), ..TopicPolicy::default() };
        let policy =
            changed(&before, r#"{"topic":"t","rate":"100/s","history":{"max":5}}"#).unwrap();
        let history = TopicHistory { max: Some(5), ..TopicHistory::default() };
        assert_eq!(policy, TopicPolicy { rate: "100/s".parse().ok(), history, ..before });
    }

    #[test]
    fn what_is_reset_follows_the_configuration_unless_it_is_given_as_well() {
        let timeout = Some(Span::seconds(1));
        let before =
            TopicPolicy { quota: Some(7), retry: attempts(2), timeout, ..Default::default() };
        let json = r#"{"topic":"t","reset":["retry","timeout","quota"],"quota":9}"#;
        assert_eq!(
            changed(&before, json).unwrap(),
            TopicPolicy { quota: Some(9), ..Default::default() }
        );
    }

    #[test]
    fn an_array_is_no_object() {
        let check = |json: &str, says: &str| {
            let said = json::read::<Request>(json.as_bytes()).expect_err(json).to_string();
            assert_eq!(said, says);
        };
        check(r#"{"topic":"t","history":["1h",5]}"#, "history: must be an object, not a list");
        check(r#"{"retry":[1,null,null]}"#, "retry: must be an object, not a list");
        let request: Request =
            json::read(br#"{"topic":"t","retry":null,"history":{"max":5}}"#).unwrap();
        assert!(request.retry.is_none() && request.history.is_some());
    }

    #[test]
    fn ranges_are_kept() {
        let check = |json: &str, says: &str| {
            let json = format!(r#"{{"topic":"t",{json}"#);
            let said = changed(&TopicPolicy::default(), &json).expect_err(&json).to_string();
            assert!(said.contains(says), "{json}: {said}");
        };
        check(
            r#""retry":{"max_attempts":0}}"#,
            "retry.max_attempts: must be a whole number from 1 to 1000",
        );
        check(r#""retry":{"backoff":{"kind":"fixed"}}}"#, "retry.backoff.every: is missing");
        check(
            r#""retry":{"final_statuses":[200]}}"#,
            "retry.final_statuses: must be a whole number from 300 to 599",
        );
        check(r#""timeout":"99ms"}"#, "timeout: must be from 100ms to 10m");
        check(r#""concurrency":0}"#, "concurrency: must be a whole number from 1");
        check(r#""quota":0.5}"#, "quota: must be a whole number from 1");
        check(r#""history":{"keep":1}}"#, "history.keep: must be from 1m to 3650d");
    }
}
