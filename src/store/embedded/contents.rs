//! Removes the contents of ended tasks.

use rusqlite::OptionalExtension;

use super::add::options_text;
use super::record::Record;
use super::rows::{is_unreadable, read_options};
use super::sql;
use super::sql::task::with_content;
use super::write_tx::WriteTx;
use crate::model::task::{ContentDigest, Lane, Options, State, TaskId};

pub(super) fn remove(tx: &mut WriteTx<'_>, lane: &Lane, ids: &[TaskId]) -> rusqlite::Result<()> {
    let Some(lane) = tx.find_lane(lane)? else { return Ok(()) };
    for &id in ids {
        let has_ended = match tx.load(lane, id) {
            Ok(Some(Record::Ended(ended))) => ended.state != State::Dead,
            Ok(_) => false,
            Err(failure) if is_unreadable(&failure) => false,
            Err(failure) => return Err(failure),
        };
        if has_ended {
            remove_one(tx, id)?;
        }
    }
    Ok(())
}

fn remove_one(tx: &mut WriteTx<'_>, id: TaskId) -> rusqlite::Result<()> {
    let mut select = tx.db.prepare_cached(with_content::SQL)?;
    let found: Option<(Options, ContentDigest)> = select
        .query_row([id], |row| {
            let content = row.get_ref(with_content::content)?.as_str()?;
            Ok((read_options(row, with_content::options, id)?, ContentDigest::of(content)))
        })
        .optional()?;
    if let Some((options, digest)) = found.filter(|(options, _)| options.removed.is_none()) {
        let options = options_text(&Options { removed: Some(digest), ..options });
        tx.db.prepare_cached(sql::task::REMOVE_CONTENT)?.execute((options, id))?;
    }
    Ok(())
}
