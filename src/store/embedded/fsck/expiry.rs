//! Checks that each waiting task expires when its options say, and nothing else does.

use rusqlite::{Connection, Row};

use super::remedy::Remedy;
use super::{PAGE, Page, Stage, is_moment, read_lane};
use crate::model::clock::UnixMillis;
use crate::model::task::TaskId;
use crate::store::Flaw;
use crate::store::embedded::rows::read_options;
use crate::store::embedded::sql::expiry::checked;
use crate::store::embedded::sql::task::expiring;
use crate::store::embedded::values::rows;
use crate::store::embedded::{record, sql};

/// When a task should expire, by its options. `None` if it should not, or if its due moment is
/// invalid.
fn read_expected(
    row: &Row<'_>,
    (due, options): (usize, usize),
    id: i64,
) -> rusqlite::Result<Option<i64>> {
    let moment = row.get::<_, Option<i64>>(due)?.filter(|due| is_moment(*due)).map(UnixMillis);
    let Some((moment, id)) = moment.zip(u64::try_from(id).ok()) else { return Ok(None) };
    Ok(record::expiry(moment, &read_options(row, options, TaskId(id))?).map(|expires| expires.0))
}

/// Checks tasks against the rows of `expiry`.
pub(super) fn look_at_tasks(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(expiring::SQL)?;
    let mut listed = db.prepare_cached(sql::expiry::IS_LISTED)?;
    let mut found = select.query((after, rows(PAGE)))?;
    let (mut count, mut last) = (0, after);
    while let Some(row) = found.next()? {
        (count, last) = (count + 1, row.get(expiring::id)?);
        let (lane, waits): (i64, bool) = (row.get(expiring::lane)?, row.get(expiring::waits)?);
        let expected = read_expected(row, (expiring::due, expiring::options), last)?;
        let mut remedies = Vec::new();
        if row.get::<_, bool>(expiring::has_progress)?
            && row.get::<_, Option<i64>>(expiring::expires)? != expected
        {
            remedies.push(Remedy::new(sql::progress::SET_EXPIRES, [expected.into(), last.into()]));
        }
        if let Some(moment) = expected
            && waits
            && !listed.exists((lane, moment, last))?
        {
            remedies
                .push(Remedy::new(sql::expiry::INSERT, [lane.into(), moment.into(), last.into()]));
        }
        if !remedies.is_empty() {
            page.find(
                Flaw::ExpiryWrong,
                read_lane(row, (expiring::topic, expiring::shard))?.as_ref(),
                last,
                remedies,
            );
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Expiring { after: last });
    Ok(page)
}

/// Checks the rows of `expiry` against tasks.
pub(super) fn look(db: &Connection, after: (i64, i64, i64)) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(checked::SQL)?;
    let mut found = select.query((after.0, after.1, after.2, rows(PAGE)))?;
    let (mut count, mut last) = (0, after);
    while let Some(row) = found.next()? {
        (count, last) = (
            count + 1,
            (row.get(checked::lane)?, row.get(checked::moment)?, row.get(checked::id)?),
        );
        let (lane, moment, id) = last;
        let is_of_lane = row.get::<_, Option<i64>>(checked::task_lane)? == Some(lane);
        let waits = row.get::<_, bool>(checked::waits)?;
        if !is_of_lane
            || !waits
            || read_expected(row, (checked::due, checked::options), id)? != Some(moment)
        {
            let remedies = vec![Remedy::forget_expiry(lane, moment, id)];
            page.find(
                Flaw::ExpiryWrong,
                read_lane(row, (checked::topic, checked::shard))?.as_ref(),
                id,
                remedies,
            );
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Expiry { after: last });
    Ok(page)
}
