//! Is each row of `schedule` where its task waits?

use std::collections::HashSet;

use rusqlite::Connection;

use super::super::values::rows;
use super::remedy::Remedy;
use super::{PAGE, Page, Stage, read_lane};
use crate::store::Flaw;
use crate::task::{Lane, TaskId};

struct Row {
    destination: i64,
    due: i64,
    id: i64,
    /// The destination and the moment that the task waits for, by its body and its progress. `None`: it has no body.
    home: Option<(i64, i64)>,
    leased: bool,
    has_receipt: bool,
    has_ended: bool,
    lane: Option<Lane>,
}

pub(super) fn look(db: &Connection, after: (i64, i64, i64), reported: &mut HashSet<TaskId>) -> rusqlite::Result<Page> {
    let found: Vec<Row> = db
        .prepare_cached(
            "SELECT s.destination, s.due, s.id, t.destination, ifnull(p.due, t.due), ifnull(p.leased, 0) <> 0,
                    p.current IS NOT NULL, h.id IS NOT NULL, l.topic, l.shard
             FROM schedule s
             LEFT JOIN task t ON t.id = s.id
             LEFT JOIN progress p ON p.id = s.id
             LEFT JOIN history h ON h.id = s.id
             LEFT JOIN destination d ON d.id = s.destination
             LEFT JOIN lane l ON l.id = d.lane
             WHERE (s.destination, s.due, s.id) > (?, ?, ?) ORDER BY s.destination, s.due, s.id LIMIT ?",
        )?
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
    let (destination, due): (Option<i64>, Option<i64>) = (row.get(3)?, row.get(4)?);
    Ok(Row {
        destination: row.get(0)?,
        due: row.get(1)?,
        id: row.get(2)?,
        home: destination.zip(due),
        leased: row.get(5)?,
        has_receipt: row.get(6)?,
        has_ended: row.get(7)?,
        lane: read_lane(row, 8)?,
    })
}

fn judge(row: &Row) -> Option<(Flaw, Vec<Remedy>)> {
    let take_off = Remedy::take_off(row.destination, row.due, row.id);
    let Some((home, due)) = row.home else { return Some((Flaw::ScheduledWithoutBody, vec![take_off])) };
    if row.has_ended {
        return Some((Flaw::EndedYetLive, vec![take_off]));
    }
    if row.leased && row.has_receipt {
        return Some((Flaw::ScheduledAndLeased, vec![take_off]));
    }
    if row.leased {
        // Nobody holds it, so it goes on waiting.
        let statement = "UPDATE progress SET leased = 0, due = ? WHERE id = ?";
        let unlease = Remedy::new(statement, [row.due.into(), row.id.into()]);
        return Some((Flaw::ScheduledAndLeased, vec![take_off, unlease, Remedy::put_on(home, row.due, row.id)]));
    }
    let flaw = match (row.destination == home, row.due == due) {
        (true, true) => return None,
        (false, _) => Flaw::WrongSchedule,
        (true, false) => Flaw::DueDiffers,
    };
    Some((flaw, vec![take_off, Remedy::put_on(home, due, row.id)]))
}
