//! `POST /delay/task/cancel_many` and `update_many`: change the tasks of a topic that a filter
//! selects.
//!
//! A call looks at a bounded number of tasks, and its cursor says where the next call continues. It
//! may be repeated: a task that was changed is not selected again.

use std::sync::Arc;

use delayd_wire::{AtMost, Changed, Number};
pub(crate) use delayd_wire::{
    CancelManyRequest as CancelRequest, UpdateManyRequest as UpdateRequest,
};
use futures_util::future::try_join_all;

use super::due::{self, Written};
use super::list::entry;
use super::scan::{BOUNDS, Scan, ScanBounds, Selection, TaskFilter, TaskRange};
use crate::api::auth::Caller;
use crate::api::handlers::everywhere::store_now;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields;
use crate::metrics::TaskEnd;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId, Topic};
use crate::store::{Admin, Cancelled, Condition, Moment, Rescheduled, Summary};
use axum::extract;

/// The most tasks that one call looks at.
const MOST: u32 = 10_000;
/// The most tasks of a sample.
const SAMPLE: usize = 10;
/// The tasks that are changed at the same time.
const AT_A_TIME: usize = 64;

/// The most ids of one request.
const MOST_IDS: usize = 1000;

type Ids = AtMost<delayd_wire::TaskId, MOST_IDS>;

/// `POST /delay/task/cancel_many`
pub(crate) async fn cancel(
    extract::State(api): extract::State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<CancelRequest>,
) -> Result<Success<Changed>, Error> {
    let topic = request.topic;
    let state = request.state;
    if !matches!(state, State::Scheduled | State::Dead) {
        return Err(Error::invalid("state: must be \"scheduled\" or \"dead\""));
    }
    let filter = TaskFilter::read(request.sn, request.outcome, request.due_from, request.due_to)?;
    let dry_run = request.dry_run.unwrap_or_default();
    let ids = chosen(request.task_ids)?;
    check_meant(&filter, request.all, ids.is_some())?;
    let (bounds, cursor) = (bounds(request.limit)?, fields::cursor(request.cursor)?);
    let range = filter.narrow(TaskRange::all(state));
    let selection = Selection::merged(api.topic(&topic).await?.entry, range).named(ids);
    let scan = Scan::of_change(&api, &caller, selection, bounds, cursor).await?;
    let (store, tasks) = (&api.store, &api.metrics.tasks);
    let act = |lane: Lane, id: TaskId, only: Condition| async move {
        let is_done = store.cancel(&lane, id, Some(&only)).await? == Cancelled::Done;
        if is_done {
            tasks.ended(TaskEnd::Cancel);
        }
        Ok(is_done)
    };
    let work = Work { scan, dry_run, caller: &caller };
    let is_meant = |task: &Summary| task.state == state && filter.selects(task);
    let changed = work.run(&api, is_meant, act).await?;
    log(&topic, &changed, dry_run, "cancelled");
    Ok(Success::of(changed))
}

/// `POST /delay/task/update_many`
pub(crate) async fn update(
    extract::State(api): extract::State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<UpdateRequest>,
) -> Result<Success<Changed>, Error> {
    api.check_accepting()?;
    let topic = request.topic;
    let written = Written::of(&request.at, &request.zone);
    let becomes = api
        .checked(None, |rules| due::moment(request.timing_moment, written, rules.reach()))?
        .moment;
    let filter = TaskFilter::read(request.sn, request.outcome, request.due_from, request.due_to)?;
    let dry_run = request.dry_run.unwrap_or_default();
    let ids = chosen(request.task_ids)?;
    check_meant(&filter, request.all, ids.is_some())?;
    let (bounds, cursor) = (bounds(request.limit)?, fields::cursor(request.cursor)?);
    let range = filter.narrow(TaskRange::all(State::Scheduled));
    let selection = Selection::merged(api.topic(&topic).await?.entry, range).named(ids);
    let scan = Scan::of_change(&api, &caller, selection, bounds, cursor).await?;
    let store = &api.store;
    let act = |lane: Lane, id: TaskId, only: Condition| async move {
        let moved = store.reschedule(&lane, id, Some(&only), becomes, None).await?;
        Ok(matches!(moved, Rescheduled::Done { .. }))
    };
    let is_meant = |task: &Summary| {
        task.state == State::Scheduled
            && filter.selects(task)
            && !is_there(task.due, becomes, store_now(&api))
    };
    let work = Work { scan, dry_run, caller: &caller };
    let changed = work.run(&api, is_meant, act).await?;
    log(&topic, &changed, dry_run, "moved");
    Ok(Success::of(changed))
}

/// Whether a task is due as asked for. A moment in the past means now: tasks that have fallen due
/// since then are left alone, or those that were moved would be met again.
fn is_there(due: UnixMillis, becomes: Moment, now: UnixMillis) -> bool {
    match becomes {
        Moment::At(moment) => due == moment || (moment <= due && due <= now),
        Moment::After(_) => false,
    }
}

fn bounds(limit: Option<Number>) -> Result<ScanBounds, Error> {
    let tasks = limit.map_or(Ok(MOST), |limit| limit.whole("limit", 1..=MOST))? as usize;
    Ok(ScanBounds { tasks, ..BOUNDS })
}

/// The tasks that a request names.
fn chosen(ids: Option<Ids>) -> Result<Option<Vec<TaskId>>, Error> {
    let Some(AtMost(ids)) = ids else { return Ok(None) };
    if ids.is_empty() {
        return Err(Error::Invalid(format!("task_ids: expected 1 to {MOST_IDS} ids, got none")));
    }
    fields::ids(ids).map(Some)
}

/// Refuses a request that selects all tasks, unless it says so.
fn check_meant(filter: &TaskFilter, all: Option<bool>, has_ids: bool) -> Result<(), Error> {
    let all = all.unwrap_or_default();
    if has_ids {
        return match filter.is_empty() && !all {
            true => Ok(()),
            false => Err(Error::invalid(
                "task_ids: expected neither `all` nor a filter (sn, outcome, due_from, due_to) \
                 beside it",
            )),
        };
    }
    match filter.is_empty() != all {
        false => Ok(()),
        true => Err(Error::invalid(
            "all: must be true without a filter, and absent with one (sn, outcome, due_from, \
             due_to)",
        )),
    }
}

fn log(topic: &Topic, changed: &Changed, dry_run: bool, done: &str) {
    let count = changed.count;
    let what = if dry_run { format!("counted, to be {done},") } else { done.to_owned() };
    tracing::info!(%topic, count, dry_run, "{count} tasks of topic {topic} were {what} by hand");
}

/// A change of the tasks of a scan.
struct Work<'a> {
    scan: Scan,
    dry_run: bool,
    caller: &'a Caller,
}

impl Work<'_> {
    /// Calls `act` for the tasks that are meant. It returns whether it has changed the task. Other
    /// calls may change a task after it was read here, so that it is no longer meant. The condition
    /// is that it is as it was read.
    async fn run<F>(
        self,
        api: &Api,
        is_meant: impl Fn(&Summary) -> bool + Send,
        act: impl Fn(Lane, TaskId, Condition) -> F + Send,
    ) -> Result<Changed, Error>
    where
        F: Future<Output = Result<bool, Error>> + Send,
    {
        let Self { mut scan, dry_run, caller } = self;
        let mut changed = Changed { count: 0, seen: 0, sample: Vec::new(), cursor: None };
        loop {
            let some = scan.next(api, AT_A_TIME).await?;
            if some.is_empty() {
                break;
            }
            let meant: Vec<Summary> =
                some.into_iter().filter_map(|(_, task)| task).filter(|t| is_meant(t)).collect();
            let done = match dry_run {
                true => vec![true; meant.len()],
                false => {
                    let topic = scan.topic();
                    let acts = meant.iter().map(|task| {
                        let only = Condition::Selected(task.selected());
                        act(topic.lane_of(task.id), task.id, only)
                    });
                    try_join_all(acts).await?
                }
            };
            for (task, _) in meant.into_iter().zip(done).filter(|(_, is_done)| *is_done) {
                changed.count += 1;
                if changed.sample.len() < SAMPLE {
                    changed.sample.push(entry(task, caller));
                }
            }
        }
        changed.seen = scan.seen();
        changed.cursor = scan.cursor();
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_was_moved_is_not_moved_again() {
        let check = |due: i64, becomes: i64, expected: bool| {
            let becomes = Moment::At(UnixMillis(becomes));
            assert_eq!(is_there(UnixMillis(due), becomes, UnixMillis(100)), expected, "{due}");
        };
        // A moment to come.
        check(200, 200, true);
        check(199, 200, false);
        check(90, 200, false);
        // A past moment means now.
        check(50, 60, false);
        check(60, 60, true);
        check(100, 60, true);
        check(101, 60, false);
    }

    #[test]
    fn all_tasks_are_meant_only_if_the_request_says_so() {
        let some = TaskFilter { outcome: Some("x".into()), ..TaskFilter::default() };
        let check = |filter: &TaskFilter, all: Option<bool>, expected: bool| {
            assert_eq!(check_meant(filter, all, false).is_ok(), expected, "{filter:?} {all:?}");
        };
        assert!(check_meant(&TaskFilter::default(), None, true).is_ok());
        assert!(check_meant(&TaskFilter::default(), Some(true), true).is_err());
        assert!(check_meant(&some, None, true).is_err());
        check(&TaskFilter::default(), None, false);
        check(&TaskFilter::default(), Some(true), true);
        check(&some, None, true);
        check(&some, Some(false), true);
        check(&some, Some(true), false);
    }
}
