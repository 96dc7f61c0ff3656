//! A bounded scan over tasks of a topic: those in one state, in order of time or back, or named
//! ones.
//!
//! A list of several lanes merges them: each lane lists its share of a page, and only the tasks of
//! the merged page are read. A change of dead tasks goes through the lanes one after the other, so
//! that one script changes a page.
//!
//! A scan looks at a bounded number of tasks, for a bounded time. If it is cut off, its
//! [`ScanCursor`] says where the next one continues: after the last task that it looked at, whether
//! it was meant or not.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use std::vec::IntoIter;

use delayd_wire::{ListOrder, Number};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::api::auth::Caller;
use crate::api::places::Place;
use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, InvalidName, Lane, State, TaskId};
use crate::store::{Admin, ListQuery, Listed, Summary, TopicEntry, Topics};

/// The bounds of a list and of a search.
pub(crate) const BOUNDS: ScanBounds = ScanBounds { tasks: 50_000, time: Duration::from_secs(1) };
/// The most tasks of a page.
pub(crate) const PAGE: usize = 500;
/// The entries that a lane is asked for beyond one and a half times its share of a page.
const MARGIN: usize = 4;
/// Unix seconds beyond this (the year 5138) are refused.
const FAR_SECONDS: f64 = 1e11;
/// Later than any moment of a request.
pub(crate) const FAR: UnixMillis = UnixMillis(100_000_000_000_000);
/// Later than any task's end.
pub(crate) const EVER: UnixMillis = UnixMillis(i64::MAX);

/// Which tasks are listed, and in which order.
#[derive(Debug)]
pub(crate) struct TaskRange {
    pub(crate) state: State,
    pub(crate) from: UnixMillis,
    pub(crate) to: UnixMillis,
    pub(crate) order: ListOrder,
}

impl TaskRange {
    /// All tasks in a state, the earliest first.
    pub(crate) fn all(state: State) -> Self {
        Self { state, from: UnixMillis(0), to: FAR, order: ListOrder::Oldest }
    }

    /// The first entries of some lanes, at most `most`, and whether these are surely all.
    async fn merged(
        &self,
        api: &Api,
        lanes: &[Lane],
        after: Option<Listed>,
        most: usize,
    ) -> Result<(Vec<Listed>, bool), Error> {
        let &Self { state, from, to, order } = self;
        let mut merge = Merge::new(lanes.iter().map(|lane| (lane.clone(), after)), order, most);
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
async fn summaries(
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
pub(crate) struct TaskFilter {
    pub(crate) destination: Option<Destination>,
    pub(crate) outcome: Option<String>,
    pub(crate) due_from: Option<UnixMillis>,
    pub(crate) due_to: Option<UnixMillis>,
}

impl TaskFilter {
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
    pub(crate) fn narrow(&self, range: TaskRange) -> TaskRange {
        if range.state != State::Scheduled {
            return range;
        }
        let from = self.due_from.map_or(range.from, |from| from.max(range.from));
        let to = self.due_to.map_or(range.to, |to| to.min(range.to));
        TaskRange { from, to, ..range }
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

/// Where a scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanCursor {
    /// The number of the current group of lanes.
    group: u16,
    /// Later tasks are skipped.
    to: UnixMillis,
    /// The last task of the group that was looked at. If tasks are named, only its id counts.
    after: Option<Listed>,
}

impl fmt::Display for ScanCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.to.0)?;
        self.after.map_or(Ok(()), |Listed { moment, id }| write!(f, ".{}.{id}", moment.0))
    }
}

impl FromStr for ScanCursor {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let read = || {
            let mut parts = text.split('.');
            let (group, to) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let after = match (parts.next(), parts.next(), parts.next()) {
                (None, ..) => None,
                (Some(moment), Some(id), None) => {
                    Some(Listed { moment: UnixMillis(moment.parse().ok()?), id: id.parse().ok()? })
                }
                _ => return None,
            };
            Some(Self { group, to: UnixMillis(to), after })
        };
        read().ok_or_else(|| InvalidName(WRONG_CURSOR.into()))
    }
}

/// What is wrong with a cursor that no scan of the same tasks has returned.
const WRONG_CURSOR: &str = "must be the cursor of the previous call, unchanged";

/// The tasks of a scan.
#[derive(Debug)]
pub(crate) struct Selection {
    topic: TopicEntry,
    /// The lanes that are merged. One group follows the other.
    groups: Vec<Vec<Lane>>,
    range: TaskRange,
    /// `to` of the scans that continue this one.
    later_to: UnixMillis,
    /// In place of the range: these tasks, in any state, sorted.
    ids: Option<Vec<TaskId>>,
}

impl Selection {
    /// The tasks of all lanes, in one order.
    pub(crate) fn merged(topic: TopicEntry, range: TaskRange) -> Self {
        let (groups, later_to) = (vec![topic.lanes().collect()], range.to);
        Self { topic, groups, range, later_to, ids: None }
    }

    /// The dead tasks of these lanes, one lane after the other. The scans that continue this one
    /// skip what died after `now`: without that, a replay to a receiver that still fails would
    /// never end. This one has no such bound. It finds all dead tasks, also those whose time of
    /// death lies in the future because the store's clock was set back.
    pub(crate) fn dead(topic: TopicEntry, lanes: Vec<Lane>, now: UnixMillis) -> Self {
        let range = TaskRange { to: EVER, ..TaskRange::all(State::Dead) };
        let groups = lanes.into_iter().map(|lane| vec![lane]).collect();
        Self { topic, groups, range, later_to: now, ids: None }
    }

    /// If there are ids, the tasks with these.
    pub(crate) fn named(self, mut ids: Option<Vec<TaskId>>) -> Self {
        if let Some(ids) = &mut ids {
            ids.sort_unstable();
            ids.dedup();
        }
        Self { ids, ..self }
    }
}

/// How much a scan does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanBounds {
    /// The most tasks that it looks at.
    pub(crate) tasks: usize,
    /// After this time it looks at no more tasks, unless it has looked at none.
    pub(crate) time: Duration,
}

/// A task of a page. `None` if it was purged in between.
pub(crate) type Scanned = (Listed, Option<Summary>);

/// A bounded scan.
pub(crate) struct Scan {
    selection: Selection,
    bounds: ScanBounds,
    began: Instant,
    /// The number of the current group of lanes.
    group: u16,
    /// The last task of the group that was looked at.
    after: Option<Listed>,
    seen: usize,
    /// The tasks of all pages. A task that was changed may be listed again.
    known: HashSet<TaskId>,
    /// The tasks of the last page that were not looked at yet.
    page: IntoIter<Scanned>,
    /// Whether that page is the last one of its group.
    is_last_page: bool,
    _place: Option<Place>,
}

impl Scan {
    /// Begins a scan, which keeps its place.
    ///
    /// # Errors
    /// The cursor belongs to other tasks.
    pub(crate) fn begin(
        place: Option<Place>,
        mut selection: Selection,
        bounds: ScanBounds,
        from: Option<ScanCursor>,
    ) -> Result<Self, Error> {
        let (mut group, mut after) = (0, None);
        if let Some(from) = from {
            if usize::from(from.group) >= selection.groups.len() {
                return Err(Error::Invalid(format!("cursor: {WRONG_CURSOR}")));
            }
            (group, after) = (from.group, from.after);
            (selection.range.to, selection.later_to) = (from.to, from.to);
        }
        Ok(Self {
            selection,
            bounds,
            began: Instant::now(),
            group,
            after,
            seen: 0,
            known: HashSet::new(),
            page: Vec::new().into_iter(),
            is_last_page: false,
            _place: place,
        })
    }

    /// Begins the scan of a change of many tasks, which needs a place unless they are named.
    pub(crate) async fn of_change(
        api: &Api,
        caller: &Caller,
        selection: Selection,
        bounds: ScanBounds,
        from: Option<ScanCursor>,
    ) -> Result<Self, Error> {
        let place = match selection.ids {
            None => Some(api.place(&api.changes, caller).await?),
            Some(_) => None,
        };
        Self::begin(place, selection, bounds, from)
    }

    /// The topic.
    pub(crate) fn topic(&self) -> &TopicEntry {
        &self.selection.topic
    }

    /// The next tasks, at most `most`, of one group. None at the end, or if the scan has reached
    /// its bounds. They count as looked at.
    pub(crate) async fn next(&mut self, api: &Api, most: usize) -> Result<Vec<Scanned>, Error> {
        self.read_page(api).await?;
        if self.is_late() && self.seen > 0 {
            return Ok(Vec::new());
        }
        let some: Vec<Scanned> = self.page.by_ref().take(most).collect();
        self.seen += some.len();
        self.after = some.last().map(|(listed, _)| *listed).or(self.after);
        Ok(some)
    }

    /// Reads a page if none is left. It stays empty at the end, and if the scan has reached its
    /// bounds.
    async fn read_page(&mut self, api: &Api) -> Result<(), Error> {
        while self.page.len() == 0 {
            if self.is_last_page {
                (self.group, self.after, self.is_last_page) = (self.group + 1, None, false);
            }
            let Some(lanes) = self.selection.groups.get(usize::from(self.group)) else {
                return Ok(());
            };
            let left = PAGE.min(self.bounds.tasks - self.seen);
            if left == 0 || self.is_late() {
                return Ok(());
            }
            let (mut listed, is_all) = self.listed(api, lanes, left).await?;
            let last = listed.last().copied();
            listed.retain(|listed| self.known.insert(listed.id));
            // Otherwise the scan continues before them if its time is over now.
            if listed.is_empty() {
                self.after = last.or(self.after);
            }
            let tasks = summaries(api, self.topic(), &listed).await?;
            self.page = listed.into_iter().zip(tasks).collect::<Vec<_>>().into_iter();
            self.is_last_page = is_all;
        }
        Ok(())
    }

    /// The next task.
    pub(crate) async fn next_one(&mut self, api: &Api) -> Result<Option<Scanned>, Error> {
        Ok(self.next(api, 1).await?.pop())
    }

    /// The next tasks of some lanes, and whether these are surely all.
    async fn listed(
        &self,
        api: &Api,
        lanes: &[Lane],
        most: usize,
    ) -> Result<(Vec<Listed>, bool), Error> {
        let Self { selection, after, .. } = self;
        let Some(ids) = &selection.ids else {
            return selection.range.merged(api, lanes, *after, most).await;
        };
        let behind = ids.partition_point(|id| after.is_some_and(|last| *id <= last.id));
        // All ids are checked for each lane, so this must be cheap.
        let is_there = |id: &&TaskId| {
            let shard = Lane::shard_of(**id, selection.topic.shards);
            lanes.iter().any(|lane| lane.shard == shard)
        };
        let mut rest = ids[behind..].iter().filter(is_there);
        let listed = rest.by_ref().take(most).map(|id| Listed { moment: UnixMillis(0), id: *id });
        let listed = listed.collect();
        Ok((listed, rest.next().is_none()))
    }

    fn is_late(&self) -> bool {
        self.began.elapsed() >= self.bounds.time
    }

    /// The last `count` tasks were not looked at, but the task before them was the last one.
    pub(crate) fn rewind(&mut self, last: Listed, count: usize) {
        self.after = Some(last);
        self.seen -= count;
        self.is_last_page &= count == 0;
    }

    /// How many tasks were looked at.
    pub(crate) fn seen(&self) -> u64 {
        self.seen as u64
    }

    /// Where to continue; `None` if all were looked at.
    pub(crate) fn cursor(&self) -> Option<String> {
        let to = self.selection.later_to;
        let cursor = match self.is_last_page && self.page.len() == 0 {
            true => ScanCursor { group: self.group + 1, to, after: None },
            false => ScanCursor { group: self.group, to, after: self.after },
        };
        let is_rest = usize::from(cursor.group) < self.selection.groups.len();
        is_rest.then(|| cursor.to_string())
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
