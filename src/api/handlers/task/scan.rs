//! A bounded scan over a topic's tasks in one state, in order of time, or back.
//!
//! For a topic with several lanes, each lane lists its share of a page. The lists are merged, and
//! only the tasks of the merged page are read.

use std::collections::HashMap;
use std::time::Duration;

use delayd_wire::{ListOrder, Number};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::api::auth::Caller;
use crate::api::places::Place;
use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, State, TaskId};
use crate::store::{Admin, ListQuery, Listed, Summary, TopicEntry, Topics};

/// The most tasks that one scan looks at.
const MOST: usize = 50_000;
/// A scan begins no page after this time.
const TIME: Duration = Duration::from_secs(1);
/// The tasks of a page.
const PAGE: usize = 500;
/// The entries that a lane is asked for beyond one and a half times its share of a page.
const MARGIN: usize = 4;
/// Unix seconds beyond this (the year 5138) are refused.
const FAR_SECONDS: f64 = 1e11;
/// Later than any moment of a request.
pub(crate) const FAR: UnixMillis = UnixMillis(100_000_000_000_000);

/// Which tasks are listed, and in which order.
pub(crate) struct Range {
    pub(crate) state: State,
    pub(crate) from: UnixMillis,
    pub(crate) to: UnixMillis,
    pub(crate) order: ListOrder,
}

impl Range {
    /// The first entries of all lanes, at most `most`, and whether these are surely all.
    pub(crate) async fn merged(
        &self,
        api: &Api,
        topic: &TopicEntry,
        after: Option<Listed>,
        most: usize,
    ) -> Result<(Vec<Listed>, bool), Error> {
        let &Self { state, from, to, order } = self;
        let mut merge = Merge::new(topic.lanes().map(|lane| (lane, after)), order, most);
        while !merge.asked.is_empty() {
            let limit = merge.limit;
            let query = |(lane, after)| ListQuery { lane, state, from, to, after, limit };
            let queries = merge.asked.iter().cloned().map(query);
            let pages = match order {
                ListOrder::Oldest => try_join_all(queries.map(|query| api.store.list(query))).await,
                ListOrder::Newest => {
                    try_join_all(queries.map(|query| api.store.list_latest(query))).await
                }
            };
            merge.take_in(pages?);
        }
        Ok((merge.all, merge.is_all))
    }
}

/// The first entries of several lanes.
///
/// Each lane is asked for little more than its share. Only a lane whose answer is used up within
/// the page is asked again, for twice as many.
struct Merge {
    /// The lanes to ask next, each after a place.
    asked: Vec<(Lane, Option<Listed>)>,
    /// The most entries of each.
    limit: usize,
    order: ListOrder,
    /// The most entries in all.
    most: usize,
    all: Vec<Listed>,
    /// Whether these are surely all.
    is_all: bool,
}

impl Merge {
    fn new(
        asked: impl Iterator<Item = (Lane, Option<Listed>)>,
        order: ListOrder,
        most: usize,
    ) -> Self {
        let asked: Vec<_> = asked.collect();
        let share = most.div_ceil(asked.len().max(1));
        let limit = (share + share / 2 + MARGIN).min(most);
        Self { asked, limit, order, most, all: Vec::new(), is_all: true }
    }

    /// Takes in the answers of the lanes that were asked.
    fn take_in(&mut self, pages: Vec<Vec<Listed>>) {
        let mut cut = Vec::new();
        for ((lane, _), page) in std::mem::take(&mut self.asked).into_iter().zip(pages) {
            if page.len() >= self.limit
                && let Some(last) = page.last()
            {
                cut.push((lane, *last));
            }
            self.all.extend(page);
        }
        match self.order {
            ListOrder::Oldest => self.all.sort_unstable(),
            ListOrder::Newest => self.all.sort_unstable_by(|a, b| b.cmp(a)),
        }
        self.is_all &= cut.is_empty() && self.all.len() <= self.most;
        self.all.truncate(self.most);
        let last = self.all.last().filter(|_| self.all.len() == self.most);
        let is_used_up = |place: &Listed| match (last, self.order) {
            (None, _) => true,
            (Some(last), ListOrder::Oldest) => place < last,
            (Some(last), ListOrder::Newest) => place > last,
        };
        cut.retain(|(_, place)| is_used_up(place));
        self.asked = cut.into_iter().map(|(lane, place)| (lane, Some(place))).collect();
        self.limit = (2 * self.limit).min(self.most);
    }
}

/// The tasks of a page, in its order. `None` for a task that was purged in between.
pub(crate) async fn summaries(
    api: &Api,
    topic: &TopicEntry,
    listed: &[Listed],
) -> Result<Vec<Option<Summary>>, Error> {
    let mut lanes: HashMap<Lane, Vec<TaskId>> = HashMap::new();
    for Listed { id, .. } in listed {
        lanes.entry(topic.lane_of(*id)).or_default().push(*id);
    }
    let asking = lanes.iter().map(|(lane, ids)| api.store.summaries(lane, ids.clone()));
    let found = try_join_all(asking).await?.into_iter().flatten().flatten();
    let mut by_id: HashMap<TaskId, Summary> = found.map(|summary| (summary.id, summary)).collect();
    Ok(listed.iter().map(|Listed { id, .. }| by_id.remove(id)).collect())
}

/// Which of the listed tasks are meant.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) destination: Option<Destination>,
    pub(crate) outcome: Option<String>,
    pub(crate) due_from: Option<UnixMillis>,
    pub(crate) due_to: Option<UnixMillis>,
}

impl Filter {
    /// The filter of a request.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a moment is out of range.
    pub(crate) fn read(
        sn: Option<Destination>,
        outcome: Option<String>,
        due_from: Option<Number>,
        due_to: Option<Number>,
    ) -> Result<Self, Error> {
        Ok(Self {
            destination: sn,
            outcome,
            due_from: due_from.map(|from| moment(from, "due_from")).transpose()?,
            due_to: due_to.map(|to| moment(to, "due_to")).transpose()?,
        })
    }

    /// The part of the range that may have tasks of this filter. Scheduled tasks are in the order
    /// of their due times, so the others need not be looked at.
    pub(crate) fn narrow(&self, range: Range) -> Range {
        if range.state != State::Scheduled {
            return range;
        }
        let from = self.due_from.map_or(range.from, |from| from.max(range.from));
        let to = self.due_to.map_or(range.to, |to| to.min(range.to));
        Range { from, to, ..range }
    }

    /// Whether it selects all tasks.
    pub(crate) fn is_empty(&self) -> bool {
        self.destination.is_none()
            && self.outcome.is_none()
            && self.due_from.is_none()
            && self.due_to.is_none()
    }

    /// Refuses a filter by the outcome to a caller who may not see outcomes, but could guess them.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub(crate) fn check(&self, caller: &Caller) -> Result<(), Error> {
        match self.outcome {
            Some(_) if !caller.sees_content() => Err(Error::Forbidden(
                "outcome: a token with only the scope view may not filter by outcomes".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Whether it selects the task.
    pub(crate) fn selects(&self, task: &Summary) -> bool {
        self.destination.as_ref().is_none_or(|destination| *destination == task.destination)
            && self.outcome.as_ref().is_none_or(|outcome| *outcome == task.last_outcome)
            && self.due_from.is_none_or(|from| task.due >= from)
            && self.due_to.is_none_or(|to| task.due <= to)
    }
}

/// A moment in Unix seconds.
pub(crate) fn moment(Number(seconds): Number, field: &str) -> Result<UnixMillis, Error> {
    if !(0.0..=FAR_SECONDS).contains(&seconds) {
        return Err(Error::Invalid(format!("{field}: must be Unix seconds")));
    }
    #[allow(clippy::cast_possible_truncation, reason = "just checked to be below 10^14")]
    Ok(UnixMillis((seconds * 1000.0).round() as i64))
}

/// A task of a page. `None` if it was purged in between.
pub(crate) type Scanned = (Listed, Option<Summary>);

/// A bounded scan.
pub(crate) struct Scan {
    topic: TopicEntry,
    range: Range,
    /// The last task that was looked at.
    after: Option<Listed>,
    seen: usize,
    /// The tasks of the last page that were not looked at yet, and whether that page was the last.
    unseen: usize,
    is_last_page: bool,
    began: Instant,
    /// The tasks of a request that names them, until they are read.
    named: Option<Vec<TaskId>>,
    _place: Option<Place>,
}

impl Scan {
    /// Begins a scan, which keeps its place.
    pub(crate) fn begin(
        place: Place,
        topic: TopicEntry,
        range: Range,
        after: Option<Listed>,
    ) -> Self {
        let (seen, unseen, is_last_page, began) = (0, 0, false, Instant::now());
        let (named, place) = (None, Some(place));
        Self { topic, range, after, seen, unseen, is_last_page, began, named, _place: place }
    }

    /// The tasks with these ids, in any state, as one page. It looks at no others, so it needs no
    /// place among the scans.
    pub(crate) fn of(topic: TopicEntry, ids: Vec<TaskId>) -> Self {
        let (from, to) = (UnixMillis(0), FAR);
        Self {
            topic,
            range: Range { state: State::Scheduled, from, to, order: ListOrder::Oldest },
            after: None,
            seen: 0,
            unseen: 0,
            is_last_page: false,
            began: Instant::now(),
            named: Some(ids),
            _place: None,
        }
    }

    /// The topic.
    pub(crate) fn topic(&self) -> &TopicEntry {
        &self.topic
    }

    /// The next page; `None` at the end, or if the scan has reached its bounds. The caller notes
    /// each task that it looks at by [`Self::saw`].
    pub(crate) async fn next(&mut self, api: &Api) -> Result<Option<Vec<Scanned>>, Error> {
        let is_over = self.is_last_page || self.seen >= MOST || self.is_late();
        if is_over || self.unseen > 0 {
            return Ok(None);
        }
        let most = PAGE.min(MOST - self.seen);
        let (listed, is_all) = match self.named.take() {
            Some(ids) => {
                let listed = ids.into_iter().map(|id| Listed { moment: UnixMillis(0), id });
                (listed.collect(), true)
            }
            None => self.range.merged(api, &self.topic, self.after, most).await?,
        };
        (self.unseen, self.is_last_page) = (listed.len(), is_all);
        let tasks = summaries(api, &self.topic, &listed).await?;
        Ok(Some(listed.into_iter().zip(tasks).collect()))
    }

    /// Whether its time is over.
    pub(crate) fn is_late(&self) -> bool {
        self.began.elapsed() >= TIME
    }

    /// The next task of the page was looked at.
    pub(crate) fn saw(&mut self, listed: Listed) {
        self.after = Some(listed);
        self.seen += 1;
        self.unseen = self.unseen.saturating_sub(1);
    }

    /// How many tasks were looked at.
    pub(crate) fn seen(&self) -> u64 {
        self.seen as u64
    }

    /// The last task that was looked at, unless all were.
    pub(crate) fn rest(&self) -> Option<Listed> {
        self.after.filter(|_| !self.is_last_page || self.unseen > 0)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::api::auth::Access;
    use crate::api::testing::edge_with_store;

    /// Four filtered lists of one token once made nearly all changes of an operator fail.
    #[tokio::test]
    async fn changes_and_other_tokens_do_not_wait_for_the_scans_of_a_token() {
        let (api, _draining, _folder) = edge_with_store();
        let [reader, operator] = ["reader", "operator"].map(|name| Caller::named(name, &[]));
        let begin = |places, caller| api.place(places, caller, Access::Open).boxed();
        let _running = begin(&api.scans, &reader).await.unwrap();
        let mut waiting: Vec<_> = (0..4).map(|_| begin(&api.scans, &reader)).collect();
        assert!(waiting.iter_mut().all(|scan| scan.now_or_never().is_none()));
        let refused = begin(&api.scans, &reader).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "too many wait");
        let list = begin(&api.scans, &operator).now_or_never().expect("a place").unwrap();
        let change = begin(&api.changes, &operator).now_or_never().expect("a place").unwrap();
        drop((list, change));
        // Named tasks are few, so they need no place.
        let topic = TopicEntry { topic: "t".parse().unwrap(), shards: 1 };
        let named = Scan::of(topic, vec![TaskId(7)]).next(&api).await.unwrap().unwrap();
        assert!(matches!(&named[..], [(_, None)]));
    }

    /// Eight connections of one token once made a Redis server refuse everything.
    #[tokio::test]
    async fn reads_of_a_token_wait_for_one_another_and_leave_places_to_others() {
        let (api, _draining, _folder) = edge_with_store();
        let [viewer, other] = ["viewer", "other"].map(|name| Caller::named(name, &[]));
        let mut reads: Vec<_> =
            (0..33).map(|_| api.reading(&viewer, Access::Open).boxed()).collect();
        let begun = reads.iter_mut().map(|read| read.now_or_never());
        let begun: Vec<_> = begun.flatten().map(Result::unwrap).collect();
        assert_eq!(begun.len(), 1);
        let refused = api.reading(&viewer, Access::Open).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "too many wait");
        api.reading(&other, Access::Open).now_or_never().expect("a place").unwrap();
    }

    /// Each of 256 lanes was once asked for the whole page.
    #[test]
    fn lanes_are_asked_for_their_share_and_the_page_is_that_of_all_lanes() {
        let sorted = |ids: &[u64], order| {
            let listed = |&id: &u64| Listed { moment: UnixMillis(id as i64 / 3), id: TaskId(id) };
            let mut all: Vec<Listed> = ids.iter().map(listed).collect();
            all.sort_unstable();
            if order == ListOrder::Newest {
                all.reverse();
            }
            all
        };
        let check = |of_lanes: Vec<Vec<u64>>, most: usize, most_asked: usize| {
            for order in [ListOrder::Oldest, ListOrder::Newest] {
                let lane = |shard| (Lane { topic: "t".parse().unwrap(), shard }, None);
                let mut merge = Merge::new((0..of_lanes.len() as u16).map(lane), order, most);
                let mut asked_for = 0;
                while !merge.asked.is_empty() {
                    asked_for += merge.limit * merge.asked.len();
                    let page = |(lane, after): &(Lane, Option<Listed>)| {
                        let all = sorted(&of_lanes[usize::from(lane.shard)], order);
                        let place = after.map(|last| all.iter().position(|at| *at == last));
                        let behind = place.map_or(0, |place| place.unwrap() + 1);
                        all[behind..].iter().copied().take(merge.limit).collect()
                    };
                    let pages = merge.asked.iter().map(page).collect();
                    merge.take_in(pages);
                }
                let mut all = sorted(&of_lanes.concat(), order);
                let is_all = all.len() <= most;
                all.truncate(most);
                assert_eq!((merge.all, merge.is_all), (all, is_all), "{order:?} {most}");
                assert!(asked_for <= most_asked, "{asked_for} for a page of {most}");
            }
        };
        let even = |lanes: u64, each: u64| -> Vec<Vec<u64>> {
            (0..lanes).map(|lane| (0..each).map(|n| n * lanes + lane).collect()).collect()
        };
        check(even(256, 400), 1000, 256 * 10);
        check(even(256, 400), 100, 256 * 5);
        check(even(1, 400), 100, 100);
        check(even(3, 5), 100, 3 * 55);
        check(even(4, 0), 10, 4 * 8);
        // Nearly all are in one lane.
        let mut skewed = even(64, 0);
        skewed[7] = (0..900).collect();
        skewed[9] = vec![50];
        check(skewed, 100, 64 * 7 + 14 + 28 + 56 + 100);
    }
}
