//! Does each key name a task that has it? Can be read what an idempotency key answered?

use rusqlite::Connection;
use rusqlite::types::Value;

use super::super::values::rows;
use super::remedy::Remedy;
use super::{PAGE, Page, Stage, is_moment, read_lane, read_text};
use crate::store::Flaw;
use crate::task::Options;

pub(super) fn look(db: &Connection, after: &(i64, String)) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(
        "SELECT k.lane, k.key, t.lane, t.options, l.topic, l.shard
         FROM task_key k LEFT JOIN task t ON t.id = k.task LEFT JOIN lane l ON l.id = k.lane
         WHERE (k.lane, k.key) > (?, ?) ORDER BY k.lane, k.key LIMIT ?",
    )?;
    let mut found = select.query((after.0, &after.1, rows(PAGE)))?;
    let (mut count, mut last) = (0, after.clone());
    while let Some(row) = found.next()? {
        (count, last) = (count + 1, (row.get(0)?, read_text(row, 1)?.unwrap_or_default()));
        let is_of_lane = row.get::<_, Option<i64>>(2)? == Some(last.0);
        let options = read_text(row, 3)?.map(|text| serde_json::from_str::<Options>(&text));
        let has_key = match options {
            Some(Ok(options)) => options.key.as_ref() == Some(&last.1),
            // What its options say is not known.
            Some(Err(_)) => true,
            None => false,
        };
        if !is_of_lane || !has_key {
            let statement = "DELETE FROM task_key WHERE lane = ? AND key = ?";
            let remedies = vec![Remedy::new(statement, [Value::from(last.0), last.1.clone().into()])];
            page.find(Flaw::KeyWithoutTask, read_lane(row, 4)?.as_ref(), &last.1, remedies);
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Keys { after: last });
    Ok(page)
}

pub(super) fn look_at_answers(db: &Connection, after: &(i64, String)) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(
        "SELECT i.lane, i.key, length(i.fingerprint), i.task, i.due, i.until, l.topic, l.shard
         FROM idempotency i LEFT JOIN lane l ON l.id = i.lane
         WHERE (i.lane, i.key) > (?, ?) ORDER BY i.lane, i.key LIMIT ?",
    )?;
    let mut found = select.query((after.0, &after.1, rows(PAGE)))?;
    let (mut count, mut last) = (0, after.clone());
    while let Some(row) = found.next()? {
        (count, last) = (count + 1, (row.get(0)?, read_text(row, 1)?.unwrap_or_default()));
        let lane = read_lane(row, 6)?;
        // An id is in the same bounds as a moment.
        let numbers = [row.get(3)?, row.get(4)?, row.get(5)?];
        if lane.is_none() || row.get::<_, i64>(2)? != 16 || !numbers.into_iter().all(is_moment) {
            let statement = "DELETE FROM idempotency WHERE lane = ? AND key = ?";
            let remedies = vec![Remedy::new(statement, [Value::from(last.0), last.1.clone().into()])];
            page.find(Flaw::UnreadableKey, lane.as_ref(), &last.1, remedies);
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Answers { after: last });
    Ok(page)
}
