//! Iterates over a topic's dead tasks, lane by lane, in pages.
//!
//! A walk looks at a bounded number of tasks. If it is cut off, its [`Cursor`] says where the next
//! one continues: after the last task that it looked at, whether it matched or not.
//!
//! # Invariants
//!
//! - From the second walk on, a series sees only tasks that died before its first walk began, each
//!   once. The cursor carries that time. Without it, a replay to a receiver that still fails would
//!   never end.
//! - The first walk has no such bound. It finds all dead tasks, also those whose time of death lies
//!   in the future because the store's clock was set back. It returns each task once, although a
//!   task that it returned may be replayed and die again at once.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::places::Place;
use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::model::clock::UnixMillis;
use crate::model::task::{InvalidName, Lane, State, TaskId};
use crate::store::{Admin, Delivery, ListQuery, Listed, Summary, Topics};

/// The tasks of a page.
const PAGE: usize = 500;
/// The most tasks of one walk.
pub(crate) const MAX_TASKS: u32 = 100_000;
/// A walk begins no page after this time, which is well below the request's timeout.
const TIME: Duration = Duration::from_secs(4);
/// Later than any task's end.
const EVER: UnixMillis = UnixMillis(i64::MAX);

/// Which dead tasks a walk returns.
pub(crate) struct Selection {
    /// The topic's lanes, in order.
    pub(crate) lanes: Vec<Lane>,
    /// `None`: all.
    pub(crate) ids: Option<Vec<TaskId>>,
    /// Only tasks with this last outcome.
    pub(crate) reason: Option<String>,
    /// Where the previous walk stopped.
    pub(crate) from: Option<Cursor>,
    /// The most tasks to look at.
    pub(crate) limit: usize,
}

/// Where a walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The shard of the current lane.
    shard: u16,
    /// When the first walk began.
    began: UnixMillis,
    /// The last task of the lane that was looked at. If the tasks are given by id, only the id
    /// counts.
    after: Option<Listed>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.shard, self.began.0)?;
        self.after.map_or(Ok(()), |Listed { moment, id }| write!(f, ".{}.{id}", moment.0))
    }
}

impl FromStr for Cursor {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let read = || {
            let mut parts = text.split('.');
            let (shard, began) =
                (parts.next()?.parse().ok()?, UnixMillis(parts.next()?.parse().ok()?));
            let after = match (parts.next(), parts.next(), parts.next()) {
                (None, ..) => None,
                (Some(moment), Some(id), None) => {
                    Some(Listed { moment: UnixMillis(moment.parse().ok()?), id: id.parse().ok()? })
                }
                _ => return None,
            };
            Some(Self { shard, began, after })
        };
        read()
            .ok_or_else(|| InvalidName("must be the cursor of the previous call, unchanged".into()))
    }
}

/// An iteration over the selected dead tasks.
pub(crate) struct Walk {
    /// The remaining lanes, the current one last.
    lanes: Vec<Lane>,
    number_of_lanes: u16,
    /// Sorted, which is the order within a lane.
    ids: Option<Vec<TaskId>>,
    reason: Option<String>,
    after: Option<Listed>,
    /// When the first walk began.
    first_began: UnixMillis,
    /// Tasks that died later are skipped.
    to: UnixMillis,
    began: Instant,
    seen: usize,
    /// The tasks that it returned.
    returned: HashSet<TaskId>,
    limit: usize,
    _place: Option<Place>,
}

impl Walk {
    /// Starts a walk.
    ///
    /// # Errors
    /// The cursor belongs to another topic, or the store fails.
    pub(crate) async fn begin(
        api: &Api,
        selection: Selection,
        place: Option<Place>,
    ) -> Result<Self, Error> {
        let Selection { mut lanes, mut ids, reason, from, limit } = selection;
        let number_of_lanes = u16::try_from(lanes.len()).expect("a topic has at most 256 lanes");
        if let Some(ids) = &mut ids {
            ids.sort_unstable();
            ids.dedup();
        }
        let (first_began, to) = match from {
            Some(Cursor { began, .. }) => (began, began),
            None => (api.store.next_due(Vec::new()).await?.now, EVER),
        };
        if let Some(Cursor { shard, .. }) = from {
            if shard >= number_of_lanes {
                return Err(Error::invalid(
                    "cursor: must be the cursor of the previous call, unchanged",
                ));
            }
            lanes.drain(..usize::from(shard));
        }
        lanes.reverse();
        let after = from.and_then(|from| from.after);
        let began = Instant::now();
        Ok(Self {
            lanes,
            number_of_lanes,
            ids,
            reason,
            after,
            first_began,
            to,
            began,
            seen: 0,
            returned: HashSet::new(),
            limit,
            _place: place,
        })
    }

    /// The next page of selected tasks; `None` at the end, or when the walk is cut off.
    pub(crate) async fn next(&mut self, api: &Api) -> Result<Option<(Lane, Vec<Summary>)>, Error> {
        while let Some(lane) = self.lanes.last().cloned() {
            if self.seen >= self.limit || self.began.elapsed() >= TIME {
                return Ok(None);
            }
            let mut page = self.next_ids(api, &lane).await?;
            let Some(last) = page.last() else {
                self.lanes.pop();
                self.after = None;
                continue;
            };
            self.after = Some(*last);
            page.retain(|listed| !self.returned.contains(&listed.id));
            self.seen += page.len();
            let ids = page.into_iter().map(|listed| listed.id).collect();
            let found = api.store.summaries(&lane, ids).await?.into_iter().flatten();
            let is_meant = |task: &Summary| {
                task.state == State::Dead
                    && self.reason.as_ref().is_none_or(|reason| *reason == task.last_outcome)
            };
            let page: Vec<Summary> = found.filter(is_meant).collect();
            self.returned.extend(page.iter().map(|task| task.id));
            if !page.is_empty() {
                return Ok(Some((lane, page)));
            }
        }
        Ok(None)
    }

    async fn next_ids(&self, api: &Api, lane: &Lane) -> Result<Vec<Listed>, Error> {
        let (after, limit) = (self.after, PAGE.min(self.limit - self.seen));
        let Some(wanted) = &self.ids else {
            let (from, to) = (UnixMillis(0), self.to);
            let query =
                ListQuery { lane: lane.clone(), state: State::Dead, from, to, after, limit };
            return Ok(api.store.list(query).await?);
        };
        let behind = wanted.partition_point(|id| after.is_some_and(|last| *id <= last.id));
        // All ids are checked for each lane, so this must be cheap.
        let of_lane = |id: &&TaskId| Lane::shard_of(**id, self.number_of_lanes) == lane.shard;
        let page = wanted[behind..].iter().filter(of_lane).take(limit);
        Ok(page.map(|id| Listed { moment: UnixMillis(0), id: *id }).collect())
    }

    /// How many tasks were looked at.
    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    /// Where to continue; `None` at the end.
    pub(crate) fn cursor(&self) -> Option<Cursor> {
        let lane = self.lanes.last()?;
        Some(Cursor { shard: lane.shard, began: self.first_began, after: self.after })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use http::Request;

    use super::*;
    use crate::api::edge;
    use crate::api::testing::{Ask, edge_with_store};
    use crate::store::{Asker, Claim, Claimed, Settle, Spread, Transition, Want};

    const SERVICE: &str = "message.call";

    /// Lets all due tasks of the lane die.
    async fn die(api: &Api, lane: &Lane) -> usize {
        let claim = Claim {
            lane: lane.clone(),
            wants: vec![Want { destination: SERVICE.parse().unwrap(), slots: 10 }],
            lease: Duration::from_secs(600),
            holder: None,
            more: false,
            after: None,
            in_hand: 0,
            misfires: Vec::new(),
        };
        let Claimed::Granted(grant) = api.store.claim(claim).await.unwrap() else {
            panic!("nobody else claims")
        };
        let died = |id| Settle {
            lane: lane.clone(),
            id,
            receipt: grant.receipt.clone(),
            transition: Transition::Dead { outcome: "410 Gone".into() },
        };
        let died: Vec<_> = grant.tasks.iter().map(|task| task.id).map(died).collect();
        let settled = api.store.settle(Asker::Worker, died).await;
        settled.into_iter().map(|settled| settled.unwrap()).count()
    }

    /// A replay to a receiver that refused at once sometimes counted a task twice.
    #[tokio::test]
    async fn a_walk_returns_no_task_twice_although_it_dies_again() {
        let (api, _draining, _folder) = edge_with_store();
        let api = Arc::new(api);
        let task = r#"{"topic":"t","delay":0,"content":{"sn":"message.call","url":"/"}}"#;
        for _ in 0..2 {
            let add = Request::post("/delay/task/add").body(Body::from(task)).unwrap();
            assert_eq!(edge(api.clone()).answer(add).await.status(), 200);
        }
        let lane: Lane = "t:0".parse().unwrap();
        assert_eq!(die(&api, &lane).await, 2);
        let selection = Selection {
            lanes: vec![lane.clone()],
            ids: None,
            reason: Some("410 Gone".into()),
            from: None,
            limit: 100,
        };
        let mut walk = Walk::begin(&api, selection, None).await.unwrap();
        let (_, page) = walk.next(&api).await.unwrap().expect("a page");
        let ids = page.iter().map(|task| task.id).collect();
        let at_once = Spread { first: Duration::ZERO, step: Duration::ZERO };
        assert_eq!(api.store.replay(&lane, ids, None, at_once).await.unwrap(), 2);
        assert_eq!(die(&api, &lane).await, 2);
        assert!(walk.next(&api).await.unwrap().is_none(), "they died after the replay");
        assert_eq!((walk.seen(), walk.cursor()), (2, None));
    }

    #[test]
    fn a_cursor_reads_back_what_it_writes() {
        let last =
            Listed { moment: UnixMillis(1_795_236_367_000), id: TaskId(1_795_234_567_000_042) };
        for after in [None, Some(last)] {
            let cursor = Cursor { shard: 3, began: UnixMillis(1_795_236_367_001), after };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in [
            "",
            ".",
            "1",
            "1.",
            "1.x",
            "-1.5",
            "1.5.",
            "1.5.6",
            "1.5.6.0",
            "1.5.6.7.8",
            "65536.5",
            "1-5",
        ] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
