//! Destinations over all lanes: manual holds, and how many tasks wait for each.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::Embedded;
use super::sql;
use super::sql::destination::waiting;
use super::values::read_name;
use super::write_tx::{WriteTx, lane_number};
use crate::model::task::{Destination, Lane};
use crate::store::{Holds, Result, Waiting};

impl Embedded {
    pub(crate) async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        let destination = destination.clone();
        self.writes.ask(1, move |tx| set_hold_in(tx, &destination, is_held)).await
    }

    pub(crate) async fn holds(&self) -> Result<Holds> {
        let held = self.polls.run(holds_from).await?;
        Ok(Holds { held, released: Vec::new() })
    }

    pub(crate) async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        self.scans.run(move |db| waiting_from(db, &lanes)).await
    }
}

pub(super) fn set_hold_in(
    tx: &mut WriteTx<'_>,
    destination: &Destination,
    is_held: bool,
) -> rusqlite::Result<()> {
    let name = destination.as_str();
    match is_held {
        true => tx.db.prepare_cached(sql::hold::INSERT)?.execute((name, tx.now)),
        false => tx.db.prepare_cached(sql::hold::DELETE)?.execute([name]),
    }
    .map(drop)
}

pub(super) fn holds_from(db: &Connection) -> rusqlite::Result<Vec<Destination>> {
    // A name that is not valid holds no destination, and must not fail the query.
    db.prepare_cached(sql::hold::ALL)?
        .query_map([], |row| Ok(row.get_ref(0)?.as_str().ok().and_then(|name| name.parse().ok())))?
        .filter_map(rusqlite::Result::transpose)
        .collect()
}

pub(super) fn waiting_from(db: &Connection, lanes: &[Lane]) -> rusqlite::Result<Vec<Waiting>> {
    let mut counts: BTreeMap<Destination, u64> = BTreeMap::new();
    let mut count = db.prepare_cached(waiting::SQL)?;
    for lane in lanes {
        let Some(number) = lane_number(db, lane)? else { continue };
        let mut rows = count.query([number])?;
        while let Some(row) = rows.next()? {
            *counts.entry(read_name(row, waiting::name)?).or_default() +=
                row.get::<_, i64>(waiting::count)?.unsigned_abs();
        }
    }
    Ok(counts.into_iter().map(|(destination, count)| Waiting { destination, count }).collect())
}
