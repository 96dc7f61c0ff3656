//! `list`: a page of one state, in time order.

use std::collections::BinaryHeap;

use rusqlite::{Connection, Params, Row};

use super::ledger::lane_number;
use super::sql;
use super::sql::destination::by_earliest;
use super::values::rows;
use super::values::state_number;
use crate::model::clock::UnixMillis;
use crate::model::task::{State, TaskId};
use crate::store::{ListQuery, Listed};

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
    let Bounds { after, to, limit } = Bounds {
        after: query.after.map_or(first, |last| last.max(first)),
        to: query.to,
        limit: rows(query.limit),
    };
    match query.state {
        State::Scheduled => scheduled(db, lane, Bounds { after, to, limit }),
        State::Leased => {
            page(db, sql::progress::page::SQL, (lane, after.moment, after.id, to, limit))
        }
        state => page(
            db,
            sql::history::page::SQL,
            (lane, state_number(state), after.moment, after.id, to, limit),
        ),
    }
}

/// Merges the lane's schedules. The page found so far bounds what is read of the next one, and once
/// even its earliest task lies behind the page, so do all others.
fn scheduled(db: &Connection, lane: i64, bounds: Bounds) -> rusqlite::Result<Vec<Listed>> {
    let Bounds { after, mut to, limit } = bounds;
    let mut destinations = db.prepare_cached(by_earliest::SQL)?;
    let mut destinations = destinations.query([lane])?;
    let mut found = BinaryHeap::new();
    while let Some(row) = destinations.next()? {
        let (destination, earliest): (i64, UnixMillis) =
            (row.get(by_earliest::id)?, row.get(by_earliest::earliest)?);
        if earliest > to {
            break;
        }
        found.extend(page(
            db,
            sql::schedule::page::SQL,
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

/// Runs one of the statements that are called `page`. They have the same columns.
fn page(db: &Connection, select: &str, params: impl Params) -> rusqlite::Result<Vec<Listed>> {
    use sql::schedule::page;
    let read =
        |row: &Row<'_>| Ok(Listed { moment: row.get(page::moment)?, id: row.get(page::id)? });
    db.prepare_cached(select)?.query_map(params, read)?.collect()
}
