//! The calls under `/delay/topic/`, except `list` and `set`, which have files of their own.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use delayd_wire::{Forecast, Nothing, Paused, Purged, Step, TopicShown};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::model::clock::UnixMillis;
use crate::model::task::{self, Lane, MisfirePolicy, Topic};
use crate::store::{
    self, Admin, Cleared, Counts, LaneSample, ListQuery, MAX_FORECAST, Misfired, Registered,
    SampleAnswer, SampleQuery, Sampling, Topics as _,
};

/// The tasks that are deleted together: few enough that a slow disk finishes before it counts as
/// silent.
const CHUNK: usize = 500;
/// The longest time of one purge, well below the request's timeout.
const TIME: Duration = Duration::from_secs(4);
/// The shortest and the longest step of a forecast.
const MIN_STEP: Duration = Duration::from_secs(1);
const MAX_STEP: Duration = Duration::from_secs(366 * 86_400);
const STEPS: u32 = 24;

pub(crate) use delayd_wire::{
    ForecastRequest, ResumeRequest, TopicPurgeRequest as PurgeRequest, TopicRequest,
};

/// `POST /delay/topic/get`
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<TopicRequest>,
) -> Result<Success<TopicShown>, Error> {
    let _place = api.reading(&caller).await?;
    let known = find_topic(&api, request).await?;
    show(&api, known).await.map(Success::of)
}

/// Samples the lanes: exact counts by state, with one pipeline to each server.
pub(super) async fn sample(api: &Api, lanes: Vec<Lane>) -> Result<SampleAnswer, store::Error> {
    let late_after = vec![Duration::ZERO; lanes.len()];
    api.store.sample(SampleQuery { lanes, late_after, ..SampleQuery::default() }).await
}

/// The counts of all lanes of a topic, and its next due moment.
pub(super) fn sum<'a>(
    lanes: impl IntoIterator<Item = &'a LaneSample>,
) -> (Counts, Option<UnixMillis>) {
    lanes.into_iter().fold((Counts::default(), None), |(mut counts, next), lane| {
        counts.add(&lane.counts);
        (counts, next.into_iter().chain(lane.next_due()).min())
    })
}

/// A topic with its counts.
pub(crate) async fn show(api: &Api, known: Registered) -> Result<TopicShown, Error> {
    let lanes: Vec<_> = known.entry.lanes().collect();
    let SampleAnswer { now, lanes: samples } = sample(api, lanes.clone()).await?;
    let away = || store::Error::Unavailable("the server of some lanes does not answer".into());
    let samples: Vec<LaneSample> = samples.into_iter().collect::<Option<_>>().ok_or_else(away)?;
    let (counts, next_due_ms) = sum(&samples);
    let history = lanes.iter().zip(&samples).flat_map(|(lane, sample)| {
        use task::State::{Cancelled, Delivered, Expired};
        let Counts { delivered, cancelled, expired, .. } = sample.counts;
        let states = [(Delivered, delivered), (Cancelled, cancelled), (Expired, expired)];
        states.into_iter().filter(|(_, count)| *count > 0).map(|(state, _)| {
            let (from, to) = (UnixMillis(0), UnixMillis(i64::MAX));
            api.store.list(ListQuery { lane: lane.clone(), state, from, to, after: None, limit: 1 })
        })
    });
    let oldest =
        try_join_all(history).await?.into_iter().flatten().map(|listed| listed.moment).min();
    let Registered { entry, created_by, policy, paused, .. } = known;
    Ok(TopicShown {
        topic: entry.topic.clone(),
        shards: entry.shards,
        created_by: created_by.as_deref().map(Into::into),
        policy: delayd_wire::object(&*policy),
        paused: paused.is_some(),
        paused_since_ms: paused.map(Into::into),
        overdue: counts.is_overdue(now),
        counts: counts.into(),
        next_due_ms: next_due_ms.map(Into::into),
        oldest_overdue_ms: counts.oldest_overdue(now).map(Into::into),
        history_since_ms: oldest.map(Into::into),
    })
}

/// `POST /delay/topic/pause`: stops delivery, on this instance at once and on others within a
/// second. Adds continue.
pub(crate) async fn pause(
    State(api): State<Arc<Api>>,
    Json(request): Json<TopicRequest>,
) -> Result<Success<Paused>, Error> {
    let topic = find_topic(&api, request).await?.entry.topic;
    set_paused(&api, &topic, true, None).await.map(Success::of)
}

/// `POST /delay/topic/resume`
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    Json(request): Json<ResumeRequest>,
) -> Result<Success<Paused>, Error> {
    let topic = request.topic;
    set_paused(&api, &topic, false, request.misfire).await.map(Success::of)
}

/// Pauses or resumes. `misfire`, or else the topic's setting, decides about tasks that were due
/// meanwhile.
pub(crate) async fn set_paused(
    api: &Api,
    topic: &Topic,
    pauses: bool,
    misfire: Option<MisfirePolicy>,
) -> Result<Paused, Error> {
    let known = api.topic(topic).await?;
    let paused_since_ms = if pauses {
        Some(api.store.pause(topic).await?.ok_or_else(Error::no_topic)?.into())
    } else {
        let becomes = match misfire.or(known.policy.misfire).unwrap_or_default() {
            MisfirePolicy::Fire => None,
            MisfirePolicy::Skip => Some(Misfired::Expired),
            MisfirePolicy::Dead => Some(Misfired::Dead),
        };
        api.store.resume(topic, becomes).await?.ok_or_else(Error::no_topic)?;
        None
    };
    api.topics.reload(topic).await?;
    // Only a change is logged: `delayd move` and imports also set the state that a topic already
    // has.
    if pauses != known.paused.is_some() {
        let what = if pauses { "paused" } else { "resumed" };
        tracing::info!(%topic, "Topic {topic} is {what} by hand");
    }
    Ok(Paused { topic: topic.clone(), paused: pauses, paused_since_ms })
}

/// `POST /delay/topic/purge`
pub(crate) async fn purge(
    State(api): State<Arc<Api>>,
    Json(request): Json<PurgeRequest>,
) -> Result<Success<Purged>, Error> {
    let topic = request.topic;
    if request.confirm != topic.as_str() {
        return Err(Error::invalid(
            "confirm: must repeat the topic's name, because all its tasks will be deleted",
        ));
    }
    let known = api.topic(&topic).await?;
    let began = Instant::now();
    let (mut count, mut leased, mut more) = (0, 0, false);
    for lane in known.entry.lanes() {
        loop {
            if began.elapsed() >= TIME {
                more = true;
                break;
            }
            let cleared = api.store.clear(&lane, CHUNK).await?;
            count += cleared.removed as u64;
            if cleared == Cleared::default() {
                break;
            }
        }
        leased += api.store.stats(&lane).await?.leased;
    }
    tracing::warn!(%topic, count, "{count} tasks of topic {topic} were purged by hand");
    Ok(Success::of(Purged { count, leased, more }))
}

/// `POST /delay/topic/forecast`
pub(crate) async fn forecast(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<ForecastRequest>,
) -> Result<Success<Forecast>, Error> {
    let topic = request.topic;
    let step = within(request.step, "step", MIN_STEP..=MAX_STEP)?;
    let most = u32::try_from(MAX_FORECAST).unwrap_or(u32::MAX);
    let steps = request.steps.map_or(Ok(STEPS), |steps| steps.whole("steps", 1..=most))? as usize;
    let _place = api.reading(&caller).await?;
    let known = api.topic(&topic).await?;
    let lanes: Vec<_> = known.entry.lanes().collect();
    let all = try_join_all(lanes.iter().map(|lane| api.store.forecast(lane, step, steps))).await?;
    let now = all.first().map(|forecast| forecast.now).expect("a topic has a lane");
    let steps = (0..steps).map(|i| Step {
        until_ms: (now + step.saturating_mul(u32::try_from(i + 1).unwrap_or(u32::MAX))).into(),
        count: all.iter().map(|forecast| forecast.steps[i]).sum(),
    });
    let overdue = all.iter().map(|forecast| forecast.overdue).sum();
    Ok(Success::of(Forecast { now_ms: now.into(), overdue, steps: steps.collect() }))
}

/// `POST /delay/topic/delete`
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    Json(request): Json<TopicRequest>,
) -> Result<Success<Nothing>, Error> {
    let known = find_topic(&api, request).await?;
    if !api.store.unregister(&known.entry).await? {
        return Err(Error::TopicNotEmpty);
    }
    let topic = known.entry.topic;
    api.topics.forget(&topic);
    tracing::info!(%topic, "Topic {topic} was deleted by hand");
    Ok(Success::of(Nothing {}))
}

async fn find_topic(api: &Api, TopicRequest { topic }: TopicRequest) -> Result<Registered, Error> {
    api.topics.reload(&topic).await?;
    api.topic(&topic).await
}
