//! Checks that each task stands in one place, and that its rows can be read.

use std::collections::HashSet;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::remedy::Remedy;
use super::{PAGE, Page, Stage, is_moment, read_lane, read_text};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Receipt, State, TaskId};
use crate::store::embedded::sql::task::checked;
use crate::store::embedded::sql::{self, only};
use crate::store::embedded::values::{rows, state_number};
use crate::store::{FURTHEST_DEADLINE, Flaw};

/// One task across all tables.
struct Row {
    id: i64,
    lane_number: i64,
    home: i64,
    due: i64,
    lane: Option<Lane>,
    /// The number of its topic's lanes.
    shards: Option<u64>,
    /// The lane of its destination.
    destination_lane: Option<i64>,
    progress: Option<Progress>,
    history: Option<History>,
    /// Whether it waits on the right schedule, for the right moment.
    waits: bool,
}

struct Progress {
    lane: i64,
    destination: i64,
    leased: i64,
    due: i64,
    counts: [i64; 2],
    cancelling: bool,
    receipts: [Option<String>; 2],
}

struct History {
    lane: i64,
    state: i64,
    finished: i64,
    attempts: i64,
    receipts: [Option<String>; 2],
}

pub(super) fn look(
    db: &Connection,
    after: i64,
    reported: &HashSet<TaskId>,
    now: UnixMillis,
) -> rusqlite::Result<Page> {
    let found: Vec<Row> = db
        .prepare_cached(checked::SQL)?
        .query_map((after, rows(PAGE)), read)?
        .collect::<rusqlite::Result<_>>()?;
    let mut page = Page { tasks: found.len() as u64, ..Page::default() };
    let Some(last) = found.last() else { return Ok(page) };
    page.rest = (found.len() == PAGE).then_some(Stage::Tasks { after: last.id });
    check_counter(db, last, &mut page)?;
    for row in &found {
        let is_reported = u64::try_from(row.id).is_ok_and(|id| reported.contains(&TaskId(id)));
        let mut judged = Judged { row, page: &mut page };
        judged.judge(is_reported, now.0);
    }
    Ok(page)
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let has_progress = row.get::<_, Option<i64>>(checked::progress_lane)?.is_some();
    let has_history = row.get::<_, Option<i64>>(checked::history_lane)?.is_some();
    let progress = || {
        Ok::<_, rusqlite::Error>(Progress {
            lane: row.get(checked::progress_lane)?,
            destination: row.get(checked::progress_destination)?,
            leased: row.get(checked::leased)?,
            due: row.get(checked::progress_due)?,
            counts: [row.get(checked::progress_attempts)?, row.get(checked::expiries)?],
            cancelling: row.get(checked::cancelling)?,
            receipts: [
                read_text(row, checked::progress_current)?,
                read_text(row, checked::progress_past)?,
            ],
        })
    };
    let history = || {
        Ok::<_, rusqlite::Error>(History {
            lane: row.get(checked::history_lane)?,
            state: row.get(checked::state)?,
            finished: row.get(checked::finished)?,
            attempts: row.get(checked::history_attempts)?,
            receipts: [
                read_text(row, checked::history_current)?,
                read_text(row, checked::history_past)?,
            ],
        })
    };
    Ok(Row {
        id: row.get(checked::id)?,
        lane_number: row.get(checked::lane)?,
        home: row.get(checked::destination)?,
        due: row.get(checked::due)?,
        lane: read_lane(row, (checked::topic, checked::shard))?,
        shards: row
            .get::<_, Option<i64>>(checked::shards)?
            .and_then(|shards| u64::try_from(shards).ok())
            .filter(|n| *n > 0),
        destination_lane: row.get(checked::destination_lane)?,
        progress: has_progress.then(progress).transpose()?,
        history: has_history.then(history).transpose()?,
        waits: row.get(checked::waits)?,
    })
}

/// Ids grow through the page, so its last row has the highest.
fn check_counter(db: &Connection, last: &Row, page: &mut Page) -> rusqlite::Result<()> {
    let is_behind: bool =
        db.prepare_cached(sql::meta::LAST_ID_IS_BEHIND)?.query_row([last.id], only)?;
    if is_behind {
        page.find(
            Flaw::BehindIds,
            last.lane.as_ref(),
            last.id,
            vec![Remedy::new(sql::meta::RAISE_LAST_ID, [last.id.into()])],
        );
    }
    Ok(())
}

/// The receipts without those that no receipt could match. `None` if all are valid.
fn mended(receipts: &[Option<String>; 2]) -> Option<[Value; 2]> {
    let [current, past] = receipts;
    let is_receipt = |text: &&str| text.parse::<Receipt>().is_ok();
    let kept_current = current.as_deref().filter(is_receipt);
    let kept_past = past
        .as_deref()
        .map(|past| past.split(' ').filter(is_receipt).collect::<Vec<_>>().join(" "));
    let kept_past = kept_past.filter(|past| !past.is_empty());
    if kept_current == current.as_deref() && kept_past == *past {
        return None;
    }
    Some([kept_current.map(str::to_owned).into(), kept_past.into()])
}

fn count(number: i64) -> i64 {
    number.clamp(0, u32::MAX.into())
}

/// A task that is being judged.
struct Judged<'a> {
    row: &'a Row,
    page: &'a mut Page,
}

impl Judged<'_> {
    fn find(&mut self, flaw: Flaw, remedies: Vec<Remedy>) {
        self.page.find(flaw, self.row.lane.as_ref(), self.row.id, remedies);
    }

    fn judge(&mut self, is_reported: bool, now: i64) {
        let row = self.row;
        if row.lane.is_none() || row.destination_lane != Some(row.lane_number) {
            return self.find(Flaw::ForeignRow, Vec::new());
        }
        if let (Some(shards), Some(lane), Ok(id)) = (row.shards, &row.lane, u64::try_from(row.id))
            && id % shards != u64::from(lane.shard)
        {
            self.find(Flaw::Misplaced, Vec::new());
        }
        match (&row.history, &row.progress) {
            (Some(history), progress) => {
                if let Some(progress) = progress {
                    let take_off = Remedy::take_off(row.home, progress.due, row.id);
                    self.find(Flaw::EndedYetLive, vec![Remedy::forget_progress(row.id), take_off]);
                }
                self.judge_ended(history, now);
            }
            (None, Some(progress)) => self.judge_progress(progress, is_reported, now),
            (None, None) => self.judge_waiting(row.due, is_reported, now),
        }
    }

    fn judge_ended(&mut self, history: &History, now: i64) {
        let id = self.row.id;
        if history.lane != self.row.lane_number {
            self.find(
                Flaw::LanesDiffer,
                vec![Remedy::new(sql::history::SET_LANE, [self.row.lane_number.into(), id.into()])],
            );
        }
        let is_state = State::ALL
            .into_iter()
            .any(|state| state.is_final() && state_number(state) == history.state);
        let receipts = mended(&history.receipts);
        if !is_state || receipts.is_some() || history.attempts != count(history.attempts) {
            // Its end is not known. Dead tasks are kept, and never called by themselves.
            let state = if is_state { history.state } else { state_number(State::Dead) };
            let [current, past] =
                receipts.unwrap_or_else(|| history.receipts.clone().map(Value::from));
            let values = [state.into(), count(history.attempts).into(), current, past, id.into()];
            self.find(Flaw::UnreadableEntry, vec![Remedy::new(sql::history::MEND, values)]);
        }
        if !is_moment(history.finished) {
            self.find(
                Flaw::BadMoment,
                vec![Remedy::new(sql::history::SET_FINISHED, [now.into(), id.into()])],
            );
        }
    }

    fn judge_progress(&mut self, progress: &Progress, is_reported: bool, now: i64) {
        let (id, home) = (self.row.id, self.row.home);
        let leased = progress.leased != 0;
        if progress.lane != self.row.lane_number {
            self.find(
                Flaw::LanesDiffer,
                vec![Remedy::new(
                    sql::progress::SET_LANE,
                    [self.row.lane_number.into(), id.into()],
                )],
            );
        }
        if progress.destination != home {
            self.find(
                Flaw::DestinationsDiffer,
                vec![Remedy::new(sql::progress::SET_DESTINATION, [home.into(), id.into()])],
            );
        }
        let receipts = mended(&progress.receipts);
        let has_receipt = match &receipts {
            Some([current, _]) => *current != Value::Null,
            None => progress.receipts[0].is_some(),
        };
        if receipts.is_some()
            || progress.counts != progress.counts.map(count)
            || !(0..=1).contains(&progress.leased)
        {
            let [current, past] =
                receipts.unwrap_or_else(|| progress.receipts.clone().map(Value::from));
            let [attempts, expiries] = progress.counts.map(|number| Value::from(count(number)));
            let values = [i64::from(leased).into(), attempts, expiries, current, past, id.into()];
            self.find(Flaw::UnreadableEntry, vec![Remedy::new(sql::progress::MEND, values)]);
        }
        if progress.cancelling && !(leased && has_receipt) {
            return self.find(Flaw::CancelWithoutLease, self.cancel(progress, now));
        }
        if !leased {
            return self.judge_waiting(progress.due, is_reported, now);
        }
        if !has_receipt {
            if !is_reported {
                let is_lease = is_moment(progress.due)
                    && progress.due <= (UnixMillis(now) + FURTHEST_DEADLINE).0;
                let due = if is_lease { progress.due } else { now };
                let unlease = Remedy::new(sql::progress::UNLEASE, [due.into(), id.into()]);
                self.find(Flaw::LeasedWithoutReceipt, vec![unlease, Remedy::put_on(home, due, id)]);
            }
        } else if !is_moment(progress.due) {
            self.find(
                Flaw::BadMoment,
                vec![Remedy::new(sql::progress::SET_DUE, [now.into(), id.into()])],
            );
        }
    }

    /// A cancel was pending until the end of a lease, and there is no lease.
    fn cancel(&self, progress: &Progress, now: i64) -> Vec<Remedy> {
        let (id, home) = (self.row.id, self.row.home);
        let values =
            [self.row.lane_number, state_number(State::Cancelled), now, id].map(Value::from);
        vec![
            Remedy::new(sql::history::END, values),
            Remedy::forget_progress(id),
            Remedy::take_off(home, progress.due, id),
        ]
    }

    fn judge_waiting(&mut self, due: i64, is_reported: bool, now: i64) {
        let (id, home) = (self.row.id, self.row.home);
        if !is_moment(due) {
            let later = if is_moment(self.row.due) { self.row.due.max(now) } else { now };
            let statement = if self.row.progress.is_some() {
                sql::progress::SET_DUE
            } else {
                sql::task::SET_DUE
            };
            let move_it = Remedy::new(statement, [later.into(), id.into()]);
            let remedies =
                vec![Remedy::take_off(home, due, id), move_it, Remedy::put_on(home, later, id)];
            self.find(Flaw::BadMoment, remedies);
        } else if !self.row.waits && !is_reported {
            // A moment that has passed is due now.
            self.find(Flaw::BodyWithoutPlace, vec![Remedy::put_on(home, due, id)]);
        }
    }
}
