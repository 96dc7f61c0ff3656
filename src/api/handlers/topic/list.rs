//! `POST /delay/topic/list`: the names of all topics, or a page of topics with their counts.
//!
//! An order by counts needs the counts of all topics. The sampler has them in memory, so the store
//! counts only the topics of the page, in one pipeline to each server. A topic that another
//! instance has created is missing until the next poll of the registry, for about a second.
//!
//! The cursor is the place of the last topic in the order: the value that it is sorted by, and its
//! name. No two topics have the same place, so topics of equal values are neither left out nor
//! repeated.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{TopicListed, TopicSort, Topics};

use super::manage::{sample, sum};
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{cursor, parsed};
use crate::model::clock::UnixMillis;
use crate::model::task::{InvalidName, Lane, Topic};
use crate::sampler::TREND_STEP;
use crate::store::{self, Counts, Registered, SampleAnswer, Signals};
use crate::topic::fitting;

/// The default and the maximum of topics per page.
const LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;
/// The most lanes that a page counts, unless its first topic has more.
const MOST_LANES: usize = 2048;

pub(crate) use delayd_wire::TopicListRequest as Request;

/// A part of the names of topics. `*` at the end: their beginning.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// In lower case.
    part: String,
    is_prefix: bool,
}

impl FromStr for Pattern {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (part, is_prefix) = match text.strip_suffix('*') {
            Some(part) => (part, true),
            None => (text, false),
        };
        // A part of a name is made of what names are made of.
        part.parse::<Topic>()?;
        Ok(Self { part: part.to_ascii_lowercase(), is_prefix })
    }
}

impl Pattern {
    /// Whether the topic's name has the part.
    pub(crate) fn matches(&self, topic: &Topic) -> bool {
        let name = topic.as_str().to_ascii_lowercase();
        if self.is_prefix { name.starts_with(&self.part) } else { name.contains(&self.part) }
    }
}

/// A place in an order. The derived order is that of the pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OrderPlace {
    rank: i64,
    topic: Topic,
}

/// The place of a page's last topic, and the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicCursor {
    sort: &'static str,
    place: OrderPlace,
}

impl fmt::Display for TopicCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.sort, self.place.rank, self.place.topic)
    }
}

impl FromStr for TopicCursor {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let read = || {
            let mut parts = text.splitn(3, ':');
            let sort = parts.next()?;
            let sort = TopicSort::ALL.into_iter().find(|known| known.as_str() == sort)?.as_str();
            let rank = parts.next()?.parse().ok()?;
            let topic = parts.next()?.parse().ok()?;
            Some(Self { sort, place: OrderPlace { rank, topic } })
        };
        read()
            .ok_or_else(|| InvalidName("must be the cursor of the previous page, unchanged".into()))
    }
}

/// `POST /delay/topic/list`
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<Topics>, Error> {
    let _place = api.reading(&caller).await?;
    match request == Request::ALL {
        true => names(&api, &caller).await.map(Success::of),
        false => page(&api, &caller, request).await.map(Success::of),
    }
}

async fn names(api: &Api, caller: &Caller) -> Result<Topics, Error> {
    let known = api.topics.refresh().await?;
    let covered = known.iter().filter(|known| caller.may_use(&known.entry.topic).is_ok());
    let mut topics = uncounted(api, covered);
    topics.sort_by(|a, b| a.topic.cmp(&b.topic));
    Ok(Topics { topics, ..Topics::default() })
}

/// Topics without counts: whether they are overdue is as it was sampled last.
fn uncounted<'a>(api: &Api, topics: impl IntoIterator<Item = &'a Registered>) -> Vec<TopicListed> {
    let (sampled, now) = (api.sampled.counts_by_topic(), api.sampled.snapshots().borrow().at);
    let is_overdue =
        |topic: &Topic| sampled.get(topic).is_some_and(|counts| counts.is_overdue(now));
    let shown = |known: &Registered| listed(known, is_overdue(&known.entry.topic));
    topics.into_iter().map(shown).collect()
}

async fn page(api: &Api, caller: &Caller, request: Request) -> Result<Topics, Error> {
    let sort = request.sort.unwrap_or_default();
    let limit = request.limit.map_or(Ok(LIMIT), |limit| limit.whole("limit", 1..=MAX_LIMIT))?;
    let after: Option<TopicCursor> = cursor(request.cursor)?;
    if after.as_ref().is_some_and(|after| after.sort != sort.as_str()) {
        return Err(Error::invalid("cursor: belongs to a list with another `sort`"));
    }
    let pattern = request.matches.map(|text| parsed::<Pattern>(&text, "match")).transpose()?;
    let is_asked_for = |known: &Registered| {
        let topic = &known.entry.topic;
        pattern.as_ref().is_none_or(|pattern| pattern.matches(topic))
            && caller.may_use(topic).is_ok()
    };
    let known = match api.topics.is_read() {
        true => api.topics.known(),
        // An instance that started during an outage knows no topics, but there may be some.
        false => api.topics.refresh().await?,
    };
    let found: Vec<Registered> = known.into_iter().filter(is_asked_for).collect();
    let total = found.len() as u64;
    let (mut places, sorted_as_of) = ranked(api, sort, found);
    if let Some(TopicCursor { place: last, .. }) = &after {
        places.retain(|(place, _)| place > last);
    }
    places.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let shards = places.iter().map(|(_, known)| known.entry.shards);
    let count = fitting(shards, limit as usize, MOST_LANES);
    let is_last = count == places.len();
    places.truncate(count);
    let last = places.last().filter(|_| !is_last).map(|(place, _)| place.clone());
    let cursor = last.map(|place| TopicCursor { sort: sort.as_str(), place }.to_string());
    let known: Vec<Registered> = places.into_iter().map(|(_, known)| known).collect();
    let mut topics = counted(api, &known).await?;
    let with_trend = request.trend.unwrap_or_default();
    if with_trend {
        let trends = api.sampled.trends();
        for (shown, known) in topics.iter_mut().zip(&known) {
            shown.trend = Some(trends.of(&known.entry.topic));
        }
    }
    Ok(Topics {
        topics,
        total: Some(total),
        sorted_as_of_ms: sorted_as_of.map(Into::into),
        trend_step_ms: with_trend.then_some(TREND_STEP.as_millis() as u64),
        cursor,
    })
}

/// The places of the topics, by the last counts of the sampler; and when the oldest of these was
/// read, unless the order needs none.
fn ranked(
    api: &Api,
    sort: TopicSort,
    topics: Vec<Registered>,
) -> (Vec<(OrderPlace, Registered)>, Option<UnixMillis>) {
    let place =
        |known: Registered, rank| (OrderPlace { rank, topic: known.entry.topic.clone() }, known);
    if sort == TopicSort::Name {
        return (topics.into_iter().map(|known| place(known, 0)).collect(), None);
    }
    let snapshot = api.sampled.snapshots().borrow().clone();
    let counts = api.sampled.counts_by_topic();
    let places = topics.into_iter().map(|known| {
        let counts = counts.get(&known.entry.topic).copied().unwrap_or_default();
        place(known, rank(sort, &counts, snapshot.at))
    });
    let as_of = if snapshot.is_complete { snapshot.oldest } else { UnixMillis(0) };
    (places.collect(), Some(as_of))
}

/// The value that a topic is sorted by: the lowest comes first.
fn rank(sort: TopicSort, counts: &Counts, now: UnixMillis) -> i64 {
    let earliest = |moment: Option<UnixMillis>| moment.map_or(i64::MAX, |moment| moment.0);
    let most = |count: u64| -i64::try_from(count).unwrap_or(i64::MAX);
    match sort {
        TopicSort::Name => 0,
        TopicSort::NextDue => earliest(counts.earliest),
        TopicSort::OldestOverdue => earliest(counts.oldest_overdue(now)),
        TopicSort::Pending => most(counts.scheduled.saturating_add(counts.leased)),
        TopicSort::Dead => most(counts.dead),
    }
}

/// Whether the topics are on several servers, so that an outage of one need not be one of all.
fn has_several_servers(api: &Api) -> bool {
    let known = api.topics.known();
    let lanes = known.iter().flat_map(|known| known.entry.lanes());
    let mut servers = lanes.map(|lane| api.store.server_of(&lane));
    let first = servers.next();
    servers.any(|server| Some(server) != first)
}

/// The topics with exact counts; without counts if only servers of other topics may answer.
async fn counted(api: &Api, topics: &[Registered]) -> Result<Vec<TopicListed>, Error> {
    let lanes: Vec<Lane> = topics.iter().flat_map(|known| known.entry.lanes()).collect();
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let SampleAnswer { now, lanes } = match sample(api, lanes).await {
        Err(store::Error::Unavailable(_)) if has_several_servers(api) => {
            return Ok(uncounted(api, topics));
        }
        sampled => sampled?,
    };
    let mut lanes = lanes.iter();
    let with_counts = |known: &Registered| {
        let of_topic: Vec<_> = lanes.by_ref().take(known.entry.shards.into()).collect();
        let lanes = of_topic.into_iter().map(Option::as_ref).collect::<Option<Vec<_>>>()?;
        let (counts, next_due) = sum(lanes);
        Some(TopicListed {
            counts: Some(counts.into()),
            next_due_ms: next_due.map(Into::into),
            oldest_overdue_ms: counts.oldest_overdue(now).map(Into::into),
            ..listed(known, counts.is_overdue(now))
        })
    };
    let mut shown: Vec<_> = topics.iter().map(with_counts).collect();
    if shown.iter().any(Option::is_none) {
        // The sampler sums all its counts for this.
        let sampled = uncounted(api, topics).into_iter();
        shown = shown
            .into_iter()
            .zip(sampled)
            .map(|(shown, sampled)| shown.or(Some(sampled)))
            .collect();
    }
    Ok(shown.into_iter().flatten().collect())
}

fn listed(Registered { entry, paused, .. }: &Registered, overdue: bool) -> TopicListed {
    TopicListed {
        topic: entry.topic.clone(),
        shards: entry.shards,
        paused: paused.is_some(),
        overdue,
        counts: None,
        next_due_ms: None,
        oldest_overdue_ms: None,
        trend: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_part_or_the_beginning_of_a_name() {
        let check = |pattern: &str, name: &str, expected: bool| {
            let pattern: Pattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&name.parse().unwrap()), expected, "{pattern:?} {name}");
        };
        check("cancel", "order.cancel", true);
        check("CANCEL", "order.Cancel", true);
        check("cancel*", "order.cancel", false);
        check("order*", "order.cancel", true);
        check("order.cancel.x", "order.cancel", false);
        for wrong in ["", "*", "a*b", "a b", &"a".repeat(129)] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cursor_reads_back_what_it_writes() {
        for (sort, topic) in [("name", "a"), ("dead", "a:b.c"), ("next_due", "x:7:y")] {
            let place = OrderPlace { rank: -7, topic: topic.parse().unwrap() };
            let cursor = TopicCursor { sort, place };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "a", "dead:1", "dead:x:a", "dead:1:", "size:1:a", "dead:1:a b"] {
            assert!(text.parse::<TopicCursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rank_puts_what_matters_first() {
        let now = UnixMillis(100);
        let counts = |scheduled, dead, earliest: Option<i64>| Counts {
            scheduled,
            leased: 1,
            dead,
            earliest: earliest.map(UnixMillis),
            ..Counts::default()
        };
        let check = |sort, first: Counts, second: Counts| {
            assert!(rank(sort, &first, now) < rank(sort, &second, now), "{sort:?}");
        };
        check(TopicSort::Pending, counts(3, 0, None), counts(2, 9, None));
        check(TopicSort::Dead, counts(0, 2, None), counts(9, 1, None));
        check(TopicSort::NextDue, counts(1, 0, Some(101)), counts(1, 0, Some(102)));
        check(TopicSort::NextDue, counts(1, 0, Some(99)), counts(1, 0, Some(101)));
        check(TopicSort::OldestOverdue, counts(1, 0, Some(98)), counts(1, 0, Some(99)));
        check(TopicSort::OldestOverdue, counts(1, 0, Some(100)), counts(1, 0, Some(101)));
        assert_eq!(rank(TopicSort::Name, &counts(1, 1, Some(1)), now), 0);
    }

    #[test]
    fn a_page_has_a_bounded_number_of_lanes() {
        let check = |shards: &[u16], limit, expected| {
            let count = fitting(shards.iter().copied(), limit, MOST_LANES);
            assert_eq!(count, expected, "{shards:?}");
        };
        check(&[], 5, 0);
        check(&[1; 9], 5, 5);
        check(&[256; 9], 9, 8);
        check(&[256; 9], 3, 3);
    }
}
