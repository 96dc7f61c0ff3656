//! Recurring schedules.
//!
//! The table is created with the first schedule, not by a migration: a program of this format that
//! knows nothing of it still opens the file.

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

use super::add::{self, Body};
use super::receipts::Receipts;
use super::rows::{is_unreadable, read_options};
use super::sql::recurring::{self as sql, stored};
use super::sql::{only, task};
use super::state::{Pending, StoredState, expiry};
use super::values::{read_name, rows};
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, ScheduleName, State, StoreId, TaskId};
use crate::store::{
    ContinuedSchedule, DueSchedules, Error, LAST_MOMENT, MAX_DUE_SCHEDULES, MAX_RECENT,
    MAX_SCHEDULES, NewSchedule, NextDue, Pause, Plan, Planned, PlannedOccurrence, Result, Schedule,
    ScheduleSet, TopicEntry, UNPLANNED,
};

/// What is stored of a schedule beside its definition, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PlanState {
    revision: u64,
    set: UnixMillis,
    since: UnixMillis,
    cursor: Option<String>,
    /// `since` and `cursor` before the last plan.
    before: Option<(UnixMillis, Option<String>)>,
    /// Since when an operator, or a mover, pauses it.
    paused: Option<UnixMillis>,
    moving: Option<UnixMillis>,
    origin: Option<StoreId>,
    /// The last occurrence that was handed out before the newest one.
    ran: Option<TaskId>,
    recent: Vec<(TaskId, UnixMillis)>,
}

impl PlanState {
    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some() || self.moving.is_some()
    }

    fn last_moment(&self) -> UnixMillis {
        self.recent.first().map_or(UnixMillis(0), |(_, moment)| *moment)
    }
}

/// A schedule as its row has it.
#[derive(Clone, Debug)]
struct Row {
    state: PlanState,
    definition: String,
    look: Option<UnixMillis>,
}

impl Row {
    fn shown(self, name: &ScheduleName, now: UnixMillis) -> Schedule {
        let PlanState {
            revision, set, since, cursor, before, paused, moving, origin, recent, ..
        } = self.state;
        let paused = paused.map(|since| (Pause::Operator, since));
        let recent = recent.into_iter();
        Schedule {
            name: name.clone(),
            definition: self.definition,
            revision,
            set,
            since,
            cursor,
            before,
            paused: paused.or_else(|| moving.map(|since| (Pause::Move, since))),
            look: self.look.filter(|look| *look < LAST_MOMENT),
            origin,
            recent: recent.map(|(task, moment)| PlannedOccurrence { task, moment }).collect(),
            now,
        }
    }
}

/// Whether the file has ever had a schedule.
pub(super) fn exist(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare_cached(sql::EXISTS)?.query_row([], only)
}

fn load(db: &Connection, lane: &Lane, name: &ScheduleName) -> rusqlite::Result<Option<Row>> {
    let read = |row: &rusqlite::Row<'_>| {
        let state = row.get_ref(stored::state)?.as_str()?;
        let state = serde_json::from_str(state).map_err(|error| {
            let (column, kind) = (stored::state, rusqlite::types::Type::Text);
            rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
        })?;
        Ok(Row { state, look: row.get(stored::look)?, definition: row.get(stored::definition)? })
    };
    db.prepare_cached(stored::SQL)?
        .query_row((lane.topic.as_str(), lane.shard, name.as_str()), read)
        .optional()
}

fn put(tx: &WriteTx<'_>, lane: &Lane, name: &ScheduleName, row: &Row) -> rusqlite::Result<()> {
    let state = serde_json::to_string(&row.state).expect("texts and numbers are plain data");
    let key = (lane.topic.as_str(), lane.shard, name.as_str());
    tx.db
        .prepare_cached(sql::PUT)?
        .execute((key.0, key.1, key.2, row.look, state, &row.definition))
        .map(drop)
}

/// The record of a task that was never handed out and has not ended. A mover's lease is no handing
/// out.
fn never_handed_out(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    id: Option<TaskId>,
) -> rusqlite::Result<Option<(TaskId, Pending)>> {
    let (Some(id), Some(number)) = (id, tx.find_lane(lane)?) else { return Ok(None) };
    Ok(match tx.load(number, id)? {
        Some(StoredState::Pending(pending)) if pending.attempts == 0 && !pending.cancelling => {
            Some((id, pending))
        }
        _ => None,
    })
}

/// Removes the newest occurrences, as long as they were never handed out: a worker may have given
/// one back after the next one was planned. Returns the nominal moment of the oldest one that was
/// removed.
fn withdraw(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    state: &mut PlanState,
) -> rusqlite::Result<Option<UnixMillis>> {
    let mut oldest = None;
    while let Some(moment) = withdraw_newest(tx, lane, state)? {
        oldest = Some(moment);
    }
    Ok(oldest)
}

/// Removes the occurrence that was planned last, if it was never handed out, and sets the schedule
/// back to before that plan. Returns its nominal moment if it was removed.
fn withdraw_newest(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    state: &mut PlanState,
) -> rusqlite::Result<Option<UnixMillis>> {
    let newest = state.recent.first().map(|(id, _)| *id);
    let Some((id, before)) = never_handed_out(tx, lane, newest)? else { return Ok(None) };
    let after = match before.state(tx.now) {
        // A mover has it, and learns of the cancel.
        State::Leased => StoredState::Pending(Pending { cancelling: true, ..before.clone() }),
        _ => before.end(State::Cancelled, Receipts::default(), UNPLANNED.into(), tx.now),
    };
    tx.replace(id, &StoredState::Pending(before), &after)?;
    if let Some((since, cursor)) = state.before.take() {
        (state.since, state.cursor) = (since, cursor);
    }
    Ok(Some(state.recent.remove(0).1))
}

/// What a moved schedule finds where one of its name is.
fn meets(row: &Row, moved: &ContinuedSchedule, own: StoreId) -> Meeting {
    if row.state.origin.unwrap_or(own) != moved.origin {
        Meeting::Other
    } else if row.state.moving.is_some() {
        Meeting::Own
    } else if row.state.set >= moved.set {
        Meeting::Same
    } else {
        Meeting::Older
    }
}

enum Meeting {
    /// It was moved here before.
    Same,
    /// This very store is the source.
    Own,
    /// It was moved here before, and was changed at the source since.
    Older,
    /// Another schedule.
    Other,
}

pub(super) fn set(
    tx: &mut WriteTx<'_>,
    own: StoreId,
    topic: &TopicEntry,
    new: &NewSchedule,
) -> rusqlite::Result<Result<ScheduleSet>> {
    if tx.is_stale(topic)? {
        return Ok(Err(Error::StaleEntry));
    }
    tx.register(topic, None)?;
    if !exist(tx.db)? {
        tx.db.execute(sql::CREATE, [])?;
        tx.db.execute(sql::CREATE_INDEX, [])?;
    }
    let (now, name) = (tx.now, &new.name);
    let lane = name.lane_in(&topic.topic, topic.shards);
    let (mut row, is_new) = match load(tx.db, &lane, name)? {
        Some(row) => {
            let is_equal = row.definition == new.definition;
            match new.moved.as_ref().map(|moved| meets(&row, moved, own)) {
                Some(Meeting::Own) => return Ok(Ok(ScheduleSet::Own)),
                Some(Meeting::Other) => return Ok(Ok(ScheduleSet::Taken)),
                Some(Meeting::Older) => (row, false),
                None if !is_equal => (row, false),
                Some(Meeting::Same) | None => {
                    return Ok(Ok(ScheduleSet::Unchanged(row.shown(name, now))));
                }
            }
        }
        None => {
            let key = (lane.topic.as_str(), lane.shard);
            let count: i64 = tx.db.prepare_cached(sql::COUNT)?.query_row(key, only)?;
            if count >= rows(MAX_SCHEDULES) {
                return Ok(Ok(ScheduleSet::TooMany));
            }
            let moved = new.moved.as_ref();
            let state = PlanState {
                revision: new.revision,
                set: moved.map_or(now, |moved| moved.set),
                since: moved.map_or(now, |moved| moved.since),
                cursor: moved.and_then(|moved| moved.cursor.clone()),
                before: None,
                paused: moved.filter(|moved| moved.is_paused).map(|_| now),
                moving: None,
                origin: moved.map(|moved| moved.origin).filter(|origin| *origin != own),
                ran: None,
                recent: Vec::new(),
            };
            (Row { state, definition: String::new(), look: None }, true)
        }
    };
    if !is_new {
        // A moment that has passed without being handed out is planned again, by the new
        // definition.
        let withdrawn = withdraw(tx, &lane, &mut row.state)?;
        let state = &mut row.state;
        let since = match (&new.moved, withdrawn) {
            (Some(moved), _) => moved.since,
            (None, Some(moment)) if moment <= now => UnixMillis(moment.0 - 1),
            (None, _) => now,
        };
        state.since = since.max(state.last_moment());
        (state.set, state.cursor, state.before) = (now, None, None);
        if let Some(moved) = &new.moved {
            (state.set, state.cursor) = (moved.set, moved.cursor.clone());
            state.paused = moved.is_paused.then_some(now);
        }
    }
    row.state.revision = new.revision;
    row.definition.clone_from(&new.definition);
    row.look = (!row.state.is_paused()).then_some(now);
    put(tx, &lane, name, &row)?;
    let schedule = row.shown(name, now);
    Ok(Ok(if is_new { ScheduleSet::Created(schedule) } else { ScheduleSet::Changed(schedule) }))
}

pub(super) fn read(
    db: &Connection,
    lane: &Lane,
    names: &[ScheduleName],
    now: UnixMillis,
) -> rusqlite::Result<Vec<Option<Schedule>>> {
    if !exist(db)? {
        return Ok(vec![None; names.len()]);
    }
    let read = |name| Ok(load(db, lane, name)?.map(|row| row.shown(name, now)));
    names.iter().map(read).collect()
}

pub(super) fn names(
    db: &Connection,
    lane: &Lane,
    after: Option<&ScheduleName>,
    limit: usize,
) -> rusqlite::Result<Vec<ScheduleName>> {
    if !exist(db)? {
        return Ok(Vec::new());
    }
    let after = after.map_or("", ScheduleName::as_str);
    db.prepare_cached(sql::NAMES)?
        .query_map((lane.topic.as_str(), lane.shard, after, rows(limit)), |row| read_name(row, 0))?
        .collect()
}

pub(super) fn pause_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    name: &ScheduleName,
    pause: Option<Pause>,
) -> rusqlite::Result<Option<Schedule>> {
    let now = tx.now;
    if !exist(tx.db)? {
        return Ok(None);
    }
    let Some(mut row) = load(tx.db, lane, name)? else { return Ok(None) };
    let before = row.state.paused.is_some();
    let is_same = match pause {
        Some(Pause::Operator) => before,
        Some(Pause::Move) => row.state.is_paused(),
        None => !row.state.is_paused(),
    };
    if is_same {
        return Ok(Some(row.shown(name, now)));
    }
    match pause {
        Some(pause) => {
            match pause {
                Pause::Operator => withdraw(tx, lane, &mut row.state)?,
                // Without the state before its plan, the other store would not plan it again. It
                // was given back, and moves as a task.
                Pause::Move if row.state.before.is_none() => None,
                Pause::Move => withdraw_newest(tx, lane, &mut row.state)?,
            };
            let state = &mut row.state;
            (state.paused, state.moving) = match pause {
                Pause::Operator => (Some(now), None),
                Pause::Move => (None, Some(now)),
            };
        }
        None => {
            let state = &mut row.state;
            if before {
                state.since = now.max(state.since).max(state.last_moment());
            }
            (state.paused, state.moving) = (None, None);
        }
    }
    row.look = pause.is_none().then_some(now);
    put(tx, lane, name, &row)?;
    Ok(Some(row.shown(name, now)))
}

pub(super) fn delete(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    name: &ScheduleName,
) -> rusqlite::Result<bool> {
    if !exist(tx.db)? {
        return Ok(false);
    }
    match load(tx.db, lane, name) {
        // One that cannot be read is deleted too.
        Err(failure) if is_unreadable(&failure) => {}
        row => {
            let Some(mut row) = row? else { return Ok(false) };
            withdraw(tx, lane, &mut row.state)?;
        }
    }
    remove(tx, lane, name)?;
    Ok(true)
}

fn remove(tx: &WriteTx<'_>, lane: &Lane, name: &ScheduleName) -> rusqlite::Result<()> {
    let key = (lane.topic.as_str(), lane.shard, name.as_str());
    tx.db.prepare_cached(sql::DELETE)?.execute(key).map(drop)
}

pub(super) fn forget(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    name: &ScheduleName,
    revision: u64,
) -> rusqlite::Result<bool> {
    if !exist(tx.db)? {
        return Ok(true);
    }
    let Some(row) = load(tx.db, lane, name)? else { return Ok(true) };
    if row.state.revision != revision || !row.state.is_paused() {
        return Ok(false);
    }
    // The pause has withdrawn what the other store plans again. The rest moves as tasks.
    remove(tx, lane, name)?;
    Ok(true)
}

pub(super) fn plan_in(tx: &mut WriteTx<'_>, plan: &Plan) -> rusqlite::Result<Result<Planned>> {
    if tx.is_stale(&plan.topic)? {
        return Ok(Err(Error::StaleEntry));
    }
    let (name, now) = (&plan.name, tx.now);
    let lane = name.lane_in(&plan.topic.topic, plan.topic.shards);
    let Some(mut row) = (if exist(tx.db)? { load(tx.db, &lane, name)? } else { None }) else {
        return Ok(Ok(Planned::Stale));
    };
    let state = &row.state;
    let is_read = (state.revision, state.since, &state.cursor);
    if state.is_paused() || is_read != (plan.revision, plan.since, &plan.cursor) {
        return Ok(Ok(Planned::Stale));
    }
    let newest = state.recent.first().map(|(id, _)| *id);
    if let Some((id, _)) = never_handed_out(tx, &lane, newest)? {
        if let Some((count, until)) = plan.missed {
            note_missed(tx, id, count)?;
            row.state.since = until;
        }
        row.look = Some(plan.look_again);
        put(tx, &lane, name, &row)?;
        return Ok(Ok(Planned::Waits));
    }
    let Some(next) = &plan.next else {
        row.look = Some(LAST_MOMENT);
        put(tx, &lane, name, &row)?;
        return Ok(Ok(Planned::Ended));
    };
    // The newest occurrence ran, unless it ended without being handed out.
    if let (Some(id), Some(number)) = (newest, tx.find_lane(&lane)?) {
        let attempts = match tx.load(number, id)? {
            Some(StoredState::Pending(pending)) => pending.attempts,
            Some(StoredState::Ended(ended)) => ended.attempts,
            None => 0,
        };
        if attempts > 0 {
            row.state.ran = Some(id);
        }
    }
    let task = &next.task;
    let due = task.moment.due(now);
    let id = tx.draw_id(&plan.topic, Some(lane.shard))?;
    let number = tx.lane(&lane, &plan.topic)?;
    let destination = tx.destination(number, &task.destination)?;
    let mut options = add::with_call(tx, task, lane.shard, None)?;
    let moment = options.schedule.as_ref().map_or(due, |occurrence| occurrence.moment);
    let cursor = options.schedule.as_ref().map(|occurrence| occurrence.cursor.clone());
    if let (Some(occurrence), Some(ran)) = (&mut options.schedule, row.state.ran)
        && occurrence.after.is_some()
    {
        occurrence.after = Some(ran);
    }
    let expires = expiry(due, &options);
    let options = options.json();
    let body =
        Body { lane: number, destination, due, created: now, options, content: &task.content };
    add::write_body(tx, id, &body)?;
    tx.join_schedule(id, &Pending { expires, ..Pending::fresh(number, destination, due) })?;
    tx.hint(&lane, destination, due)?;
    let state = &mut row.state;
    state.before = Some((state.since, state.cursor.take()));
    (state.cursor, state.since) = (cursor, next.since);
    state.recent.insert(0, (id, moment));
    state.recent.truncate(MAX_RECENT);
    row.look = Some(next.look);
    put(tx, &lane, name, &row)?;
    Ok(Ok(Planned::Added { task: id, due }))
}

/// Writes into an occurrence how many moments it stands for.
fn note_missed(tx: &WriteTx<'_>, id: TaskId, count: u64) -> rusqlite::Result<()> {
    let read = |row: &rusqlite::Row<'_>| read_options(row, 0, id);
    let options = tx.db.prepare_cached(task::OPTIONS)?.query_row([id], read).optional()?;
    let Some(mut options) = options else { return Ok(()) };
    if let Some(occurrence) = &mut options.schedule {
        occurrence.missed = count;
    }
    tx.db.prepare_cached(task::SET_OPTIONS)?.execute((options.json(), id)).map(drop)
}

pub(super) fn due(
    db: &Connection,
    lane: &Lane,
    now: UnixMillis,
    skip: usize,
) -> rusqlite::Result<DueSchedules> {
    if !exist(db)? {
        return Ok(DueSchedules { now, names: Vec::new() });
    }
    let of = (lane.topic.as_str(), lane.shard, now, rows(MAX_DUE_SCHEDULES), rows(skip));
    let names = db
        .prepare_cached(sql::DUE)?
        .query_map(of, |row| read_name(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(DueSchedules { now, names })
}

/// The earliest moment of each lane at which a planner looks at a schedule.
pub(super) fn next(db: &Connection, lanes: &[Lane], now: UnixMillis) -> rusqlite::Result<NextDue> {
    if !exist(db)? {
        return Ok(NextDue { now, lanes: vec![None; lanes.len()] });
    }
    let mut select = db.prepare_cached(sql::EARLIEST)?;
    let mut earliest =
        |lane: &Lane| select.query_row((lane.topic.as_str(), lane.shard, LAST_MOMENT), only);
    Ok(NextDue { now, lanes: lanes.iter().map(&mut earliest).collect::<rusqlite::Result<_>>()? })
}

/// Whether a topic has schedules.
pub(super) fn topic_has(db: &Connection, topic: &str) -> rusqlite::Result<bool> {
    if !exist(db)? {
        return Ok(false);
    }
    db.prepare_cached(sql::TOPIC_HAS)?.query_row([topic], only)
}
