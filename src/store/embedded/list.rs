//! `list`: a page of one state, in time order.

use std::collections::BinaryHeap;

use rusqlite::{Connection, Params};

use super::ledger::lane_number;
use super::rows::state_number;
use super::values::rows;
use crate::clock::UnixMillis;
use crate::store::{ListQuery, Listed};
use crate::task::{State, TaskId};

/// A page's bounds as the statements take them.
struct Bounds {
    /// Only what comes after this entry.
    after: Listed,
    to: UnixMillis,
    limit: i64,
}

pub(super) fn list(db: &Connection, query: &ListQuery) -> rusqlite::Result<Vec<Listed>> {
    let Some(lane) = lane_number(db, &query.lane)? else { return Ok(Vec::new()) };
    // No task has number 0: everything at `from` comes after it.
    let first = Listed { moment: query.from, id: TaskId(0) };
    let Bounds { after, to, limit } =
        Bounds { after: query.after.map_or(first, |last| last.max(first)), to: query.to, limit: rows(query.limit) };
    match query.state {
        State::Scheduled => scheduled(db, lane, Bounds { after, to, limit }),
        State::Leased => page(
            db,
            "SELECT due, id FROM progress WHERE lane = ? AND leased = 1
             AND (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?",
            (lane, after.moment, after.id, to, limit),
        ),
        state => page(
            db,
            "SELECT finished, id FROM history WHERE lane = ? AND state = ?
             AND (finished, id) > (?, ?) AND finished <= ? ORDER BY finished, id LIMIT ?",
            (lane, state_number(state), after.moment, after.id, to, limit),
        ),
    }
}

/// Merges the lane's schedules. The page found so far bounds what is read of the next one, and once even its
/// earliest task lies behind the page, so do all others.
fn scheduled(db: &Connection, lane: i64, bounds: Bounds) -> rusqlite::Result<Vec<Listed>> {
    let Bounds { after, mut to, limit } = bounds;
    let mut destinations = db.prepare_cached(
        "SELECT id, earliest FROM destination WHERE lane = ? AND earliest IS NOT NULL ORDER BY earliest",
    )?;
    let mut destinations = destinations.query([lane])?;
    let mut found = BinaryHeap::new();
    while let Some(row) = destinations.next()? {
        let (destination, earliest): (i64, UnixMillis) = (row.get(0)?, row.get(1)?);
        if earliest > to {
            break;
        }
        found.extend(page(
            db,
            "SELECT due, id FROM schedule WHERE destination = ?
             AND (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?",
            (destination, after.moment, after.id, to, limit),
        )?);
        while rows(found.len()) > limit {
            found.pop();
        }
        if rows(found.len()) == limit
            && let Some(last) = found.peek()
        {
            to = to.min(last.moment);
        }
    }
    Ok(found.into_sorted_vec())
}

fn page(db: &Connection, select: &str, params: impl Params) -> rusqlite::Result<Vec<Listed>> {
    db.prepare_cached(select)?.query_map(params, |row| Ok(Listed { moment: row.get(0)?, id: row.get(1)? }))?.collect()
}
