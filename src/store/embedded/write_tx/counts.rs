//! The counts of a lane's tasks by state, kept in the lane's row, so that one lookup returns them
//! whatever their number.
//!
//! Every function that moves a row of `schedule`, `progress` or `history` counts it here, and each
//! transaction writes the difference. So the counts are committed together with the rows; `check`
//! counts the rows again.

use rusqlite::{Connection, OptionalExtension};

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State};
use crate::store::embedded::Embedded;
use crate::store::embedded::sql::lane::{counts, history};
use crate::store::embedded::sql::{self, only};
use crate::store::embedded::write_tx::{WriteTx, lane_number};
use crate::store::{Counts, Histories, LaneHistory, Result};

impl Embedded {
    pub(crate) async fn stats(&self, lane: &Lane) -> Result<Counts> {
        let lane = lane.clone();
        self.reads.run(move |db| stats(db, &lane)).await
    }

    pub(crate) async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        let clock = self.clock.clone();
        self.scans.run(move |db| histories(db, &lanes, clock.now())).await
    }
}

impl WriteTx<'_> {
    /// Writes the changes of the counts. Must run before the counts are read from the tables.
    pub(crate) fn write_counts(&mut self) -> rusqlite::Result<()> {
        for (lane, [scheduled, leased, delivered, dead, cancelled, expired]) in
            std::mem::take(&mut self.deltas.0)
        {
            self.db
                .prepare_cached(sql::lane::COUNT)?
                .execute((scheduled, leased, delivered, dead, cancelled, expired, lane))?;
        }
        Ok(())
    }

    /// How many tasks of the lane wait or are leased.
    pub(crate) fn pending(&mut self, lane: i64) -> rusqlite::Result<u64> {
        let stored: i64 = self.db.prepare_cached(sql::lane::PENDING)?.query_row([lane], only)?;
        let changed =
            *self.deltas.of(lane, State::Scheduled) + *self.deltas.of(lane, State::Leased);
        Ok(u64::try_from(stored + changed).unwrap_or(0))
    }
}

pub(crate) fn stats(db: &Connection, lane: &Lane) -> rusqlite::Result<Counts> {
    let Some(number) = lane_number(db, lane)? else { return Ok(Counts::default()) };
    let found = db
        .prepare_cached(counts::SQL)?
        .query_row([number], |row| {
            let count =
                |column| row.get::<_, i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
            Ok(Counts {
                scheduled: count(counts::scheduled)?,
                leased: count(counts::leased)?,
                delivered: count(counts::delivered)?,
                dead: count(counts::dead)?,
                cancelled: count(counts::cancelled)?,
                expired: count(counts::expired)?,
                earliest: row.get(counts::earliest)?,
            })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// One lookup per lane.
pub(crate) fn histories(
    db: &Connection,
    lanes: &[Lane],
    now: UnixMillis,
) -> rusqlite::Result<Histories> {
    let mut look = db.prepare_cached(history::SQL)?;
    let has_table: bool = db.prepare_cached(sql::recurring::EXISTS)?.query_row([], only)?;
    let mut schedules = match has_table {
        true => Some(db.prepare_cached(sql::recurring::LANE_HAS)?),
        false => None,
    };
    let mut histories = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let found = look
            .query_row((lane.topic.as_str(), lane.shard, now), |row| {
                let ends: [Option<UnixMillis>; 3] = [
                    row.get(history::delivered)?,
                    row.get(history::cancelled)?,
                    row.get(history::expired)?,
                ];
                let ended = u64::try_from(row.get::<_, i64>(history::ended)?).unwrap_or(0);
                Ok(LaneHistory {
                    ended,
                    oldest: ends.into_iter().flatten().min(),
                    has_leftovers: row.get(history::has_leftovers)?,
                    has_schedules: false,
                })
            })
            .optional()?;
        let has_schedules = match &mut schedules {
            Some(select) => select.exists((lane.topic.as_str(), lane.shard))?,
            None => false,
        };
        histories.push(Some(LaneHistory { has_schedules, ..found.unwrap_or_default() }));
    }
    Ok(Histories { now, lanes: histories })
}
