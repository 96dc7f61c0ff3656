//! `POST /delay/dead/causes`: the dead tasks of a topic, or of all topics, grouped by cause.
//!
//! Over all topics, the store first counts the lanes, many at a time. Only lanes with dead tasks
//! are read. Of each topic, a bounded number of tasks is read, so that a topic with very many does
//! not hide the others.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract;
use delayd_wire::{Cause, CauseTopic, Causes};
use tokio::time::Instant;

use super::{MAX_TASKS, TIME};
use crate::api::auth::Caller;
use crate::api::handlers::task::scan::{EVER, PAGE, Scan, ScanBounds, Selection};
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{self, LastTopic};
use crate::api::wire::shown::sn_of;
use crate::model::task::{Lane, State, Topic};
use crate::store::{Registered, SampleQuery, Sampling, Summary, TopicEntry};
use crate::topic::fitting;

/// The most tasks of a call.
const MOST: usize = MAX_TASKS as usize;
/// The bounds of a call over all topics.
const BOUNDS: OfAll = OfAll { tasks_of_topic: 10_000, tasks: MOST, time: Duration::from_secs(3) };
/// The most causes that an answer has.
const MOST_CAUSES: usize = 1000;
/// The most lanes that are counted together.
const LANES: usize = 512;
/// The most topics that are named for a cause.
const MOST_NAMED: usize = 20;

pub(crate) use delayd_wire::CausesRequest as Request;

/// How much a call over all topics reads.
struct OfAll {
    /// The most tasks of one topic.
    tasks_of_topic: usize,
    /// The most tasks in all.
    tasks: usize,
    /// The call reads the tasks of no further topic after this time. The last topic may take the
    /// time of a scan.
    time: Duration,
}

/// `POST /delay/dead/causes`
pub(crate) async fn causes(
    extract::State(api): extract::State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<Causes>, Error> {
    let Request { topic, cursor } = request;
    let cursor = fields::cursor(cursor)?;
    let _place = api.reading(&caller).await?;
    let causes = match (topic, cursor) {
        (Some(topic), None) => of_one(&api, &caller, &topic).await,
        (Some(_), Some(_)) => Err(Error::invalid("cursor: must be absent beside a topic")),
        (None, cursor) => {
            let last = cursor.map(|LastTopic(last)| last);
            of_all(&api, &caller, last, &BOUNDS).await
        }
    };
    causes.map(Success::of)
}

async fn of_one(api: &Api, caller: &Caller, topic: &Topic) -> Result<Causes, Error> {
    let topic = api.topic(topic).await?.entry;
    let lanes = topic.lanes().collect();
    let mut found = FoundCauses::default();
    let (_, more) = found.read(api, (&topic, lanes), MOST, false).await?;
    let (causes, is_cut) = found.causes(caller);
    Ok(Causes { causes, more: more || is_cut, topics_seen: None, cursor: None })
}

/// Reads at least one topic, so that each call makes progress, however slow the store is.
async fn of_all(
    api: &Api,
    caller: &Caller,
    from: Option<Topic>,
    bounds: &OfAll,
) -> Result<Causes, Error> {
    let mut topics = api.topics.refresh().await?;
    topics.sort_unstable_by(|a, b| a.entry.topic.cmp(&b.entry.topic));
    topics.retain(|known| from.as_ref().is_none_or(|last| known.entry.topic > *last));
    let (began, mut found, mut tasks, mut is_any_cut) =
        (Instant::now(), FoundCauses::default(), 0, false);
    let (mut rest, mut last) = (&topics[..], None);
    'all: while !rest.is_empty() {
        if last.is_some() && began.elapsed() >= bounds.time {
            break;
        }
        let shards = rest.iter().map(|known| known.entry.shards);
        let (counted, others) = rest.split_at(fitting(shards, rest.len(), LANES));
        for (topic, lanes) in with_dead_tasks(api, counted).await? {
            if !lanes.is_empty() {
                let is_over =
                    tasks + bounds.tasks_of_topic > bounds.tasks || began.elapsed() >= bounds.time;
                if last.is_some() && is_over {
                    break 'all;
                }
                let dead = (topic, lanes);
                let (read, more) = found.read(api, dead, bounds.tasks_of_topic, true).await?;
                tasks += read;
                is_any_cut |= more;
            }
            last = Some(&topic.topic);
        }
        rest = others;
    }
    let seen =
        last.map_or(0, |last| topics.partition_point(|known| known.entry.topic <= *last) as u64);
    let is_all = seen == topics.len() as u64;
    let (causes, is_cut) = found.causes(caller);
    Ok(Causes {
        causes,
        more: is_any_cut || is_cut,
        topics_seen: Some(seen),
        cursor: last.filter(|_| !is_all).map(ToString::to_string),
    })
}

/// The topics, each with its lanes that have dead tasks or whose server does not answer.
async fn with_dead_tasks<'a>(
    api: &Api,
    topics: &'a [Registered],
) -> Result<Vec<(&'a TopicEntry, Vec<Lane>)>, Error> {
    let lanes: Vec<Lane> = topics.iter().flat_map(|known| known.entry.lanes()).collect();
    let late_after = vec![Duration::ZERO; lanes.len()];
    let query = SampleQuery { lanes, late_after, ..SampleQuery::default() };
    let mut samples = api.store.sample(query).await?.lanes.into_iter();
    let with_dead = |known: &'a Registered| {
        let has_dead = |_: &Lane| {
            let sample = samples.next().flatten();
            sample.is_none_or(|sample| sample.counts.dead > 0)
        };
        (&known.entry, known.entry.lanes().filter(has_dead).collect())
    };
    Ok(topics.iter().map(with_dead).collect())
}

/// What was found so far, by the last outcome.
#[derive(Default)]
struct FoundCauses {
    by_reason: BTreeMap<String, Group>,
}

/// The tasks of one cause.
struct Group {
    cause: Cause,
    topics: BTreeMap<Topic, u64>,
}

impl FoundCauses {
    /// Reads up to `limit` dead tasks of these lanes of a topic. Returns how many it read, and
    /// whether there are more. The topic is noted beside the counts if they are of several.
    async fn read(
        &mut self,
        api: &Api,
        (topic, lanes): (&TopicEntry, Vec<Lane>),
        limit: usize,
        is_one_of_several: bool,
    ) -> Result<(usize, bool), Error> {
        let dead = Selection::dead(topic.clone(), lanes, EVER);
        let mut scan = Scan::begin(None, dead, ScanBounds { tasks: limit, time: TIME }, None)?;
        let noted = is_one_of_several.then_some(&topic.topic);
        loop {
            let page = scan.next(api, PAGE).await?;
            if page.is_empty() {
                return Ok((scan.seen() as usize, scan.cursor().is_some()));
            }
            let tasks = page.into_iter().filter_map(|(_, task)| task);
            tasks.filter(|task| task.state == State::Dead).for_each(|task| self.add(task, noted));
        }
    }

    fn add(&mut self, task: Summary, topic: Option<&Topic>) {
        let ended = task.finished.unwrap_or(task.due).into();
        let Group { cause, topics } =
            self.by_reason.entry(task.last_outcome).or_insert_with(|| Group {
                cause: Cause {
                    reason: None,
                    count: 0,
                    first_ms: ended,
                    last_ms: ended,
                    task_id: task.id.into(),
                    sn: sn_of(&task.destination),
                    topic: topic.cloned(),
                    topics: Vec::new(),
                    more_topics: None,
                },
                topics: BTreeMap::new(),
            });
        cause.count += 1;
        (cause.first_ms, cause.last_ms) = (cause.first_ms.min(ended), cause.last_ms.max(ended));
        if let Some(topic) = topic {
            match topics.get_mut(topic) {
                Some(count) => *count += 1,
                None => drop(topics.insert(topic.clone(), 1)),
            }
        }
    }

    /// The causes, the most frequent first, and whether there are more than an answer has.
    fn causes(self, caller: &Caller) -> (Vec<Cause>, bool) {
        let shown = |(reason, Group { mut cause, topics }): (String, Group)| {
            cause.reason = caller.content(reason);
            let mut named: Vec<(&Topic, u64)> =
                topics.iter().map(|(t, count)| (t, *count)).collect();
            named.sort_by_key(|(_, count)| Reverse(*count));
            cause.more_topics =
                cause.topic.as_ref().map(|_| named.len().saturating_sub(MOST_NAMED) as u64);
            let of_topic =
                |(topic, count): (&Topic, u64)| CauseTopic { topic: topic.clone(), count };
            cause.topics = named.into_iter().take(MOST_NAMED).map(of_topic).collect();
            cause
        };
        let mut causes: Vec<Cause> = self.by_reason.into_iter().map(shown).collect();
        causes.sort_by_key(|cause| Reverse(cause.count));
        let is_cut = causes.len() > MOST_CAUSES;
        causes.truncate(MOST_CAUSES);
        (causes, is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::edge_with_store;

    #[tokio::test]
    async fn a_call_without_time_makes_progress() {
        let (api, _draining, _folder) = edge_with_store();
        for name in ["a", "b", "c"] {
            api.topics.ensure(&name.parse().unwrap()).await.unwrap();
        }
        let bounds = OfAll { time: Duration::ZERO, ..BOUNDS };
        let (mut from, mut calls) = (None, 0);
        loop {
            let answer = of_all(&api, &Caller::with(&[]), from, &bounds).await.unwrap();
            calls += 1;
            assert!(answer.topics_seen > Some(0) && calls <= 3, "{answer:?}");
            match answer.cursor {
                Some(cursor) => from = Some(cursor.parse().unwrap()),
                None => break,
            }
        }
    }
}
