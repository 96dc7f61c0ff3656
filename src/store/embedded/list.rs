//! `list`: a page of tasks in one state, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rusqlite::{Connection, Params, Row};

use super::Embedded;
use super::sql;
use super::sql::destination::by_earliest;
use super::values::{rows, state_number};
use super::write_tx::lane_number;
use crate::model::clock::UnixMillis;
use crate::model::task::{State, TaskId};
use crate::store::{ListQuery, Listed, Result};

impl Embedded {
    pub(crate) async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.reads.run(move |db| list_from(db, &query)).await
    }

    pub(crate) async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.reads.run(move |db| list_latest_from(db, &query)).await
    }
}

/// The bounds of a page, as the statements take them.
struct PageBounds {
    /// Only entries after this one.
    after: Listed,
    to: UnixMillis,
    limit: i64,
}

pub(super) fn list_from(db: &Connection, query: &ListQuery) -> rusqlite::Result<Vec<Listed>> {
    let Some(lane) = lane_number(db, &query.lane)? else { return Ok(Vec::new()) };
    // No task has number 0, so everything at `from` comes after it.
    let first = Listed { moment: query.from, id: TaskId(0) };
    let PageBounds { after, to, limit } = PageBounds {
        after: query.after.map_or(first, |last| last.max(first)),
        to: query.to,
        limit: rows(query.limit),
    };
    match query.state {
        State::Scheduled => scheduled(db, lane, PageBounds { after, to, limit }),
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

/// Merges the lane's schedules. The page found so far bounds the reading of the next schedule. Once
/// even the earliest task of a schedule lies behind the page, those of all further ones do.
fn scheduled(db: &Connection, lane: i64, bounds: PageBounds) -> rusqlite::Result<Vec<Listed>> {
    let PageBounds { after, mut to, limit } = bounds;
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

/// The same as [`list_from`], the latest first.
pub(super) fn list_latest_from(
    db: &Connection,
    query: &ListQuery,
) -> rusqlite::Result<Vec<Listed>> {
    let Some(lane) = lane_number(db, &query.lane)? else { return Ok(Vec::new()) };
    // No task has a higher number than the highest id, so everything at `to` comes before it.
    let last = Listed { moment: query.to, id: TaskId(TaskId::MAX.0 + 1) };
    let before = query.after.map_or(last, |after| after.min(last));
    let bounds = Back { before, from: query.from, limit: rows(query.limit) };
    match query.state {
        State::Scheduled => scheduled_latest(db, lane, bounds),
        State::Leased => {
            let Back { before, from, limit } = bounds;
            let params = (lane, before.moment, before.id, from, limit);
            page(db, sql::progress::page_back::SQL, params)
        }
        state => {
            let Back { before, from, limit } = bounds;
            let params = (lane, state_number(state), before.moment, before.id, from, limit);
            page(db, sql::history::page_back::SQL, params)
        }
    }
}

/// The bounds of a page that goes back, as the statements take them.
struct Back {
    /// Only entries before this one.
    before: Listed,
    from: UnixMillis,
    limit: i64,
}

/// Merges all schedules of the lane: which of them have late tasks is not known. The page found so
/// far bounds the reading of the next schedule.
fn scheduled_latest(
    db: &Connection,
    lane: i64,
    Back { before, mut from, limit }: Back,
) -> rusqlite::Result<Vec<Listed>> {
    let mut destinations = db.prepare_cached(by_earliest::SQL)?;
    let mut destinations = destinations.query([lane])?;
    let mut found: BinaryHeap<Reverse<Listed>> = BinaryHeap::new();
    while let Some(row) = destinations.next()? {
        let destination: i64 = row.get(by_earliest::id)?;
        let params = (destination, before.moment, before.id, from, limit);
        found.extend(page(db, sql::schedule::page_back::SQL, params)?.into_iter().map(Reverse));
        while rows(found.len()) > limit {
            found.pop();
        }
        if rows(found.len()) == limit
            && let Some(Reverse(first)) = found.peek()
        {
            from = from.max(first.moment);
        }
    }
    Ok(found.into_sorted_vec().into_iter().map(|Reverse(listed)| listed).collect())
}

/// Runs a statement named `page` or `page_back`. They have the same columns.
fn page(db: &Connection, select: &str, params: impl Params) -> rusqlite::Result<Vec<Listed>> {
    use sql::schedule::page;
    let read =
        |row: &Row<'_>| Ok(Listed { moment: row.get(page::moment)?, id: row.get(page::id)? });
    db.prepare_cached(select)?.query_map(params, read)?.collect()
}
