//! Checks that each row of `schedule` is where its task waits.

use std::collections::HashSet;

use rusqlite::Connection;

use super::remedy::Remedy;
use super::{PAGE, Page, Stage, read_lane};
use crate::model::task::{Lane, TaskId};
use crate::store::Flaw;
use crate::store::embedded::sql;
use crate::store::embedded::sql::schedule::checked;
use crate::store::embedded::values::rows;

struct Row {
    destination: i64,
    due: i64,
    id: i64,
    /// The destination and the moment that the task waits for, by its other rows. `None` if it has
    /// no row in `task`.
    home: Option<(i64, i64)>,
    leased: bool,
    has_receipt: bool,
    has_ended: bool,
    lane: Option<Lane>,
}

pub(super) fn look(
    db: &Connection,
    after: (i64, i64, i64),
    reported: &mut HashSet<TaskId>,
) -> rusqlite::Result<Page> {
    let found: Vec<Row> = db
        .prepare_cached(checked::SQL)?
        .query_map((after.0, after.1, after.2, rows(PAGE)), read)?
        .collect::<rusqlite::Result<_>>()?;
    let mut page = Page::default();
    if let Some(last) = found.last().filter(|_| found.len() == PAGE) {
        page.rest = Some(Stage::Schedules { after: (last.destination, last.due, last.id) });
    }
    for row in found {
        if let Some((flaw, remedies)) = judge(&row) {
            reported.extend(u64::try_from(row.id).map(TaskId));
            page.find(flaw, row.lane.as_ref(), row.id, remedies);
        }
    }
    Ok(page)
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let (destination, due): (Option<i64>, Option<i64>) =
        (row.get(checked::home)?, row.get(checked::home_due)?);
    Ok(Row {
        destination: row.get(checked::destination)?,
        due: row.get(checked::due)?,
        id: row.get(checked::id)?,
        home: destination.zip(due),
        leased: row.get(checked::leased)?,
        has_receipt: row.get(checked::has_receipt)?,
        has_ended: row.get(checked::has_ended)?,
        lane: read_lane(row, (checked::topic, checked::shard))?,
    })
}

fn judge(row: &Row) -> Option<(Flaw, Vec<Remedy>)> {
    let take_off = Remedy::take_off(row.destination, row.due, row.id);
    let Some((home, due)) = row.home else {
        return Some((Flaw::ScheduledWithoutBody, vec![take_off]));
    };
    if row.has_ended {
        return Some((Flaw::EndedYetLive, vec![take_off]));
    }
    if row.leased && row.has_receipt {
        return Some((Flaw::ScheduledAndLeased, vec![take_off]));
    }
    if row.leased {
        // It has no holder, so it continues to wait.
        let unlease = Remedy::new(sql::progress::UNLEASE, [row.due.into(), row.id.into()]);
        return Some((
            Flaw::ScheduledAndLeased,
            vec![take_off, unlease, Remedy::put_on(home, row.due, row.id)],
        ));
    }
    let flaw = match (row.destination == home, row.due == due) {
        (true, true) => return None,
        (false, _) => Flaw::WrongSchedule,
        (true, false) => Flaw::DueDiffers,
    };
    Some((flaw, vec![take_off, Remedy::put_on(home, due, row.id)]))
}
