//! Does each waiting task expire when its options say, and nothing else?

use rusqlite::{Connection, Row};

use super::super::record;
use super::super::rows::read_options;
use super::super::values::rows;
use super::remedy::Remedy;
use super::{PAGE, Page, Stage, is_moment, read_lane};
use crate::clock::UnixMillis;
use crate::store::Flaw;
use crate::task::TaskId;

/// When a task should expire, by its body; `None`: it should not, or its due moment is none.
fn read_expected(row: &Row<'_>, due: usize, options: usize, id: i64) -> rusqlite::Result<Option<i64>> {
    let moment = row.get::<_, Option<i64>>(due)?.filter(|due| is_moment(*due)).map(UnixMillis);
    let Some((moment, id)) = moment.zip(u64::try_from(id).ok()) else { return Ok(None) };
    Ok(record::expiry(moment, &read_options(row, options, TaskId(id))?).map(|expires| expires.0))
}

/// From the tasks to the rows of `expiry`.
pub(super) fn look_at_tasks(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(
        "SELECT t.id, t.lane, t.due, t.options, p.id IS NOT NULL, p.expires, ifnull(p.leased, 0) = 0 AND h.id IS NULL,
                l.topic, l.shard
         FROM task t LEFT JOIN progress p ON p.id = t.id LEFT JOIN history h ON h.id = t.id LEFT JOIN lane l ON l.id = t.lane
         WHERE t.id > ? ORDER BY t.id LIMIT ?",
    )?;
    let mut listed = db.prepare_cached("SELECT 1 FROM expiry WHERE lane = ? AND moment = ? AND id = ?")?;
    let mut found = select.query((after, rows(PAGE)))?;
    let (mut count, mut last) = (0, after);
    while let Some(row) = found.next()? {
        (count, last) = (count + 1, row.get(0)?);
        let (lane, waits): (i64, bool) = (row.get(1)?, row.get(6)?);
        let expected = read_expected(row, 2, 3, last)?;
        let mut remedies = Vec::new();
        if row.get::<_, bool>(4)? && row.get::<_, Option<i64>>(5)? != expected {
            remedies.push(Remedy::new("UPDATE progress SET expires = ? WHERE id = ?", [expected.into(), last.into()]));
        }
        if let Some(moment) = expected
            && waits
            && !listed.exists((lane, moment, last))?
        {
            let list = "INSERT OR IGNORE INTO expiry (lane, moment, id) VALUES (?, ?, ?)";
            remedies.push(Remedy::new(list, [lane.into(), moment.into(), last.into()]));
        }
        if !remedies.is_empty() {
            page.find(Flaw::ExpiryWrong, read_lane(row, 7)?.as_ref(), last, remedies);
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Expiring { after: last });
    Ok(page)
}

/// And back.
pub(super) fn look(db: &Connection, after: (i64, i64, i64)) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(
        "SELECT e.lane, e.moment, e.id, t.lane, t.due, t.options, ifnull(p.leased, 0) = 0 AND h.id IS NULL, l.topic, l.shard
         FROM expiry e LEFT JOIN task t ON t.id = e.id LEFT JOIN progress p ON p.id = e.id
         LEFT JOIN history h ON h.id = e.id LEFT JOIN lane l ON l.id = e.lane
         WHERE (e.lane, e.moment, e.id) > (?, ?, ?) ORDER BY e.lane, e.moment, e.id LIMIT ?",
    )?;
    let mut found = select.query((after.0, after.1, after.2, rows(PAGE)))?;
    let (mut count, mut last) = (0, after);
    while let Some(row) = found.next()? {
        (count, last) = (count + 1, (row.get(0)?, row.get(1)?, row.get(2)?));
        let (lane, moment, id) = last;
        let is_of_lane = row.get::<_, Option<i64>>(3)? == Some(lane);
        if !is_of_lane || !row.get::<_, bool>(6)? || read_expected(row, 4, 5, id)? != Some(moment) {
            let remedies = vec![Remedy::forget_expiry(lane, moment, id)];
            page.find(Flaw::ExpiryWrong, read_lane(row, 7)?.as_ref(), id, remedies);
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Expiry { after: last });
    Ok(page)
}
