//! Checks that each key names a task that has it, and that the answers of idempotency keys can be
//! read.

use rusqlite::Connection;
use rusqlite::types::Value;

use super::remedy::Remedy;
use super::{PAGE, Page, Stage, is_moment, read_lane, read_text};
use crate::model::task::Options;
use crate::store::Flaw;
use crate::store::embedded::sql;
use crate::store::embedded::sql::idempotency::checked as answer;
use crate::store::embedded::sql::task_key::checked as key;
use crate::store::embedded::values::rows;

pub(super) fn look(db: &Connection, after: &(i64, String)) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(key::SQL)?;
    let mut found = select.query((after.0, &after.1, rows(PAGE)))?;
    let (mut count, mut last) = (0, after.clone());
    while let Some(row) = found.next()? {
        (count, last) =
            (count + 1, (row.get(key::lane)?, read_text(row, key::key)?.unwrap_or_default()));
        let is_of_lane = row.get::<_, Option<i64>>(key::task_lane)? == Some(last.0);
        let options =
            read_text(row, key::options)?.map(|text| serde_json::from_str::<Options>(&text));
        let has_key = match options {
            Some(Ok(options)) => options.key.as_ref() == Some(&last.1),
            // Its options cannot be read.
            Some(Err(_)) => true,
            None => false,
        };
        if !is_of_lane || !has_key {
            let remedies = vec![Remedy::new(
                sql::task_key::DELETE,
                [Value::from(last.0), last.1.clone().into()],
            )];
            page.find(
                Flaw::KeyWithoutTask,
                read_lane(row, (key::topic, key::shard))?.as_ref(),
                &last.1,
                remedies,
            );
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Keys { after: last });
    Ok(page)
}

pub(super) fn look_at_answers(db: &Connection, after: &(i64, String)) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(answer::SQL)?;
    let mut found = select.query((after.0, &after.1, rows(PAGE)))?;
    let (mut count, mut last) = (0, after.clone());
    while let Some(row) = found.next()? {
        (count, last) =
            (count + 1, (row.get(answer::lane)?, read_text(row, answer::key)?.unwrap_or_default()));
        let lane = read_lane(row, (answer::topic, answer::shard))?;
        // Ids have the same bounds as moments.
        let numbers = [row.get(answer::task)?, row.get(answer::due)?, row.get(answer::until)?];
        if lane.is_none()
            || row.get::<_, i64>(answer::fingerprint_bytes)? != 16
            || !numbers.into_iter().all(is_moment)
        {
            let remedies = vec![Remedy::new(
                sql::idempotency::DELETE,
                [Value::from(last.0), last.1.clone().into()],
            )];
            page.find(Flaw::UnreadableKey, lane.as_ref(), &last.1, remedies);
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Answers { after: last });
    Ok(page)
}
