//! Removes the contents of ended tasks.

use rusqlite::OptionalExtension;

use super::Embedded;
use super::rows::{is_unreadable, read_options};
use super::sql;
use super::sql::task::with_content;
use super::state::StoredState;
use super::write_tx::WriteTx;
use crate::model::task::{ContentDigest, Lane, Options, State, TaskId};
use crate::store::Result;

/// The most bytes of contents that one transaction reads; a larger one alone is possible.
const MOST_BYTES: usize = 1 << 20;

impl Embedded {
    pub(crate) async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> {
        let mut ids = ids.to_vec();
        while !ids.is_empty() {
            let (lane, left) = (lane.clone(), ids.clone());
            let seen = self.writes.run(ids.len(), move |tx| remove(tx, &lane, &left)).await?;
            ids.drain(..seen);
        }
        Ok(())
    }
}

/// Removes contents of the first of the tasks. Returns how many tasks it has looked at.
pub(super) fn remove(tx: &mut WriteTx<'_>, lane: &Lane, ids: &[TaskId]) -> rusqlite::Result<usize> {
    let Some(lane) = tx.find_lane(lane)? else { return Ok(ids.len()) };
    let mut bytes = 0;
    for (at, &id) in ids.iter().enumerate() {
        if bytes >= MOST_BYTES {
            return Ok(at);
        }
        let has_ended = match tx.load(lane, id) {
            Ok(Some(StoredState::Ended(ended))) => ended.state != State::Dead,
            Ok(_) => false,
            Err(failure) if is_unreadable(&failure) => false,
            Err(failure) => return Err(failure),
        };
        if has_ended {
            bytes += match remove_one(tx, id) {
                Err(failure) if is_unreadable(&failure) => 0,
                read => read?,
            };
        }
    }
    Ok(ids.len())
}

/// Returns the length of the content. An empty one stays, because its digest would take more room.
fn remove_one(tx: &mut WriteTx<'_>, id: TaskId) -> rusqlite::Result<usize> {
    let mut select = tx.db.prepare_cached(with_content::SQL)?;
    let found: Option<(Options, ContentDigest, usize)> = select
        .query_row([id], |row| {
            let content = row.get_ref(with_content::content)?.as_str()?;
            let options = read_options(row, with_content::options, id)?;
            Ok((options, ContentDigest::of(content), content.len()))
        })
        .optional()?;
    let Some((options, digest, length)) = found else { return Ok(0) };
    if options.removed.is_none() && length > 0 {
        let options = Options { removed: Some(digest), ..options }.json();
        tx.db.prepare_cached(sql::task::REMOVE_CONTENT)?.execute((options, id))?;
    }
    Ok(length)
}
