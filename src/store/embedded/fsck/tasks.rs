//! Judges each task by all its rows, and puts it where they say.
//!
//! | rows | the task |
//! |---|---|
//! | one of `history` | has ended, whatever else is stored |
//! | one of `progress`, leased, with a receipt | is leased |
//! | any other | waits |
//!
//! Its row of `task` says in which lane it is, and for which destination.

use rusqlite::types::Value;
use rusqlite::{Connection, Row};

use super::{CheckPage, Repair, is_moment, read_lane, read_text, run, take_off, walk};
use crate::model::clock::UnixMillis;
use crate::model::task::{Receipt, State, TaskId};
use crate::store::Flaw;
use crate::store::embedded::rows::{
    read_count, read_outcome, read_pending, read_receipts, read_state_or,
};
use crate::store::embedded::sql::task::checked;
use crate::store::embedded::sql::{self, check};
use crate::store::embedded::state::{EndedTask, Pending, StoredState, due_after_lease};
use crate::store::embedded::write_tx::WriteTx;

/// What a task's rows should be.
#[derive(Debug)]
pub(super) struct Sound {
    id: i64,
    record: StoredState,
    has_progress: bool,
    /// Where it stands in `schedule`, if it does.
    place: Option<(i64, i64)>,
}

pub(super) fn look(
    db: &Connection,
    after: &[Value],
    most: usize,
    now: UnixMillis,
) -> rusqlite::Result<CheckPage> {
    walk(db, checked::SQL, after, most, |page, row| {
        let id: i64 = row.get(checked::id)?;
        let lane = read_lane(row, (checked::topic, checked::shard))?;
        if id < 0 || lane.is_none() || row.get(checked::is_foreign)? {
            page.find(Flaw::ForeignRow, lane, id, false);
            return Ok(vec![id.into()]);
        }
        if row.get(checked::is_misplaced)? {
            page.find(Flaw::Misplaced, lane.clone(), id, false);
        }
        let (sound, flaws) = judge(row, id, now)?;
        if !flaws.is_empty() {
            page.repairs.push(Repair::Task(Box::new(sound)));
        }
        flaws.into_iter().for_each(|flaw| page.find(flaw, lane.clone(), id, true));
        Ok(vec![id.into()])
    })
}

/// What the task's rows should be, and in what they differ from that.
fn judge(row: &Row<'_>, id: i64, now: UnixMillis) -> rusqlite::Result<(Sound, Vec<Flaw>)> {
    let task = TaskId(id.unsigned_abs());
    let valid = |moment: UnixMillis, other| if is_moment(moment.0) { moment } else { other };
    let (lane, destination): (i64, i64) = (row.get(checked::lane)?, row.get(checked::destination)?);
    let due: UnixMillis = row.get(checked::due)?;
    let has_progress: bool = row.get(checked::has_progress)?;
    let stands: bool = row.get(checked::stands)?;
    let state = read_state_or(row, checked::state, State::Scheduled)?;
    let receipts = read_receipts(row, (checked::current, checked::past), task)?;
    let stored = (read_text(row, checked::current)?, read_text(row, checked::past)?);
    let are_unreadable = stored.0.as_deref() != receipts.current.as_ref().map(Receipt::as_str)
        || stored.1 != receipts.past_text();

    let mut flaws = Vec::new();
    let mut find = |flaw, is_found: bool| flaws.extend(is_found.then_some(flaw));
    find(Flaw::UnreadableEntry, are_unreadable || row.get(checked::is_unreadable)?);
    find(Flaw::LanesDiffer, row.get(checked::lanes_differ)?);
    let mut ended = EndedTask {
        lane,
        state,
        finished: now,
        attempts: read_count(row, checked::attempts)?,
        receipts,
        outcome: read_outcome(row, checked::outcome)?,
    };
    let record = if state.is_final() {
        let finished: UnixMillis = row.get(checked::finished)?;
        find(Flaw::EndedYetLive, has_progress);
        find(Flaw::BadMoment, !is_moment(finished.0));
        StoredState::Ended(EndedTask { finished: valid(finished, now), ..ended })
    } else {
        let mut pending = Pending::fresh(lane, destination, due);
        if has_progress {
            let stored = read_pending(row, checked::pending, task)?;
            find(Flaw::DestinationsDiffer, stored.destination != destination);
            pending = Pending { lane, destination, ..stored };
        }
        let is_held = pending.leased && ended.receipts.current.is_some();
        if pending.cancelling && !is_held {
            find(Flaw::CancelWithoutLease, true);
            (ended.state, ended.receipts) = (State::Cancelled, ended.receipts.kept());
            StoredState::Ended(ended)
        } else {
            if pending.leased && !is_held {
                // A worker may be calling it until its lease ends.
                find(Flaw::LeasedWithoutReceipt, true);
                pending.leased = false;
                pending.due = due_after_lease(valid(pending.due, now), now);
            } else if !is_moment(pending.due.0) {
                find(Flaw::BadMoment, true);
                pending.due = if is_held { now } else { valid(due, now).max(now) };
            } else {
                find(Flaw::BodyWithoutPlace, !is_held && !stands);
            }
            StoredState::Pending(pending)
        }
    };
    let place = (destination, row.get(checked::waits_for)?);
    Ok((Sound { id, record, has_progress, place: stands.then_some(place) }, flaws))
}

impl Sound {
    /// Replaces the task's rows.
    pub(super) fn write(&self, tx: &mut WriteTx<'_>) -> rusqlite::Result<()> {
        let (id, task) = (self.id, TaskId(self.id.unsigned_abs()));
        run(tx, check::PROGRESS.repair, &[id.into()])?;
        run(tx, check::HISTORY.repair, &[id.into()])?;
        if let Some((destination, due)) = self.place {
            take_off(tx, destination, due, id)?;
        }
        match &self.record {
            StoredState::Ended(ended) => tx.write_history(task, ended),
            StoredState::Pending(pending) => {
                if self.has_progress {
                    tx.write_progress(task, pending)?;
                } else {
                    tx.db.execute(sql::task::SET_DUE, (pending.due, id))?;
                }
                tx.join_schedule(task, pending)
            }
        }
    }
}
