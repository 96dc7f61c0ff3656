//! `sample`: counts of lanes for the sampler. The counts by state are columns of the lane. Waiting
//! tasks are counted in their index, up to a limit, because SQLite counts rows one by one.

use rusqlite::{Connection, OptionalExtension};

use super::Embedded;
use super::sql::{self, destination, lane, only};
use super::values::{read_name, rows};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane};
use crate::store::{
    Counts, LaneSample, MAX_SAMPLED, Result, SampleAnswer, SampleQuery, ScheduleSample,
};

/// The most rows that one sample counts, some milliseconds, and how many of one schedule.
const MOST_ROWS: u64 = 50_000;
const MOST_ROWS_OF_ONE: u64 = 5_000;
/// The same for a thorough sample.
const MOST_ROWS_THOROUGH: u64 = 1_000_000;
const MOST_ROWS_OF_ONE_THOROUGH: u64 = 500_000;

impl Embedded {
    pub(crate) async fn sample(&self, query: SampleQuery) -> Result<SampleAnswer> {
        let clock = self.clock.clone();
        let reader = if query.is_thorough { &self.scans } else { &self.reads };
        reader.run(move |db| sample_from(db, &query, clock.now())).await
    }

    /// There is one instance, and none is remembered.
    pub(crate) async fn forget_instance(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

pub(super) fn sample_from(
    db: &Connection,
    query: &SampleQuery,
    now: UnixMillis,
) -> rusqlite::Result<SampleAnswer> {
    let (mut left, most_of_one) = match query.is_thorough {
        true => (MOST_ROWS_THOROUGH, MOST_ROWS_OF_ONE_THOROUGH),
        false => (MOST_ROWS, MOST_ROWS_OF_ONE),
    };
    let lanes = query.lanes.iter().enumerate().map(|(place, lane)| {
        let late = now - query.late_after.get(place).copied().unwrap_or_default();
        let moments: Vec<UnixMillis> =
            std::iter::once(late).chain(query.within.iter().map(|span| now + *span)).collect();
        let mut sample = of_lane(db, lane, now, &moments, |destination| {
            let most = left.min(most_of_one);
            let counted = count(db, destination, &moments, most)?;
            left -= counted.rows;
            Ok(counted)
        })?;
        // A thorough sample tells what it counted in each span: no more.
        if !query.is_thorough {
            complete(&mut sample.schedules, sample.counts.scheduled);
        }
        Ok(Some(sample))
    });
    Ok(SampleAnswer { now, lanes: lanes.collect::<rusqlite::Result<_>>()? })
}

fn of_lane(
    db: &Connection,
    lane: &Lane,
    now: UnixMillis,
    moments: &[UnixMillis],
    mut count: impl FnMut(i64) -> rusqlite::Result<WaitingCount>,
) -> rusqlite::Result<LaneSample> {
    let found = db.prepare_cached(lane::sampled::SQL)?.query_row(
        (lane.topic.as_str(), lane.shard),
        |row| {
            let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
            let counts = Counts {
                scheduled: count(lane::sampled::scheduled)?,
                leased: count(lane::sampled::leased)?,
                delivered: count(lane::sampled::delivered)?,
                dead: count(lane::sampled::dead)?,
                cancelled: count(lane::sampled::cancelled)?,
                expired: count(lane::sampled::expired)?,
                earliest: None,
            };
            Ok((row.get::<_, i64>(lane::sampled::id)?, counts))
        },
    );
    let Some((lane, mut counts)) = found.optional()? else { return Ok(LaneSample::default()) };
    let mut schedules = Vec::new();
    let mut after = db.prepare_cached(sql::schedule::EARLIEST_AFTER)?;
    for (called, most) in [(false, 1), (true, MAX_SAMPLED)] {
        let mut select = db.prepare_cached(if called {
            destination::sampled::SQL
        } else {
            destination::sampled_pull::SQL
        })?;
        let mut found = select.query((lane, rows(most)))?;
        while let Some(row) = found.next()? {
            let name: Destination = read_name(row, destination::sampled::name)?;
            let id: i64 = row.get(destination::sampled::id)?;
            let WaitingCount { waiting, mut due, is_cut, .. } = count(id)?;
            let earliest: UnixMillis = row.get(destination::sampled::earliest)?;
            let next = match earliest > now {
                true => Some(earliest),
                false => after.query_row((id, now), only)?,
            };
            // Other lanes may have used up the rows, and this one is overdue nevertheless.
            for (count, moment) in due.iter_mut().zip(moments) {
                *count = (*count).max(u64::from(earliest <= *moment));
            }
            let late = due.remove(0);
            schedules.push(ScheduleSample {
                destination: name,
                earliest,
                next,
                waiting,
                due,
                late,
                is_cut,
            });
        }
    }
    counts.earliest = schedules.iter().map(|schedule| schedule.earliest).min();
    Ok(LaneSample { counts, schedules })
}

/// The lane's count of waiting tasks completes that of the only schedule that was not counted
/// whole. Most lanes have one schedule.
fn complete(schedules: &mut [ScheduleSample], scheduled: u64) {
    let is_whole = schedules.len() <= MAX_SAMPLED;
    let counted: u64 = schedules.iter().map(|schedule| schedule.waiting).sum();
    let mut cut = schedules.iter_mut().filter(|schedule| schedule.is_cut);
    if let (Some(only), None, true) = (cut.next(), cut.next(), is_whole) {
        only.waiting += scheduled.saturating_sub(counted);
    }
}

/// How many tasks wait for a destination.
#[derive(Debug, Default)]
struct WaitingCount {
    waiting: u64,
    due: Vec<u64>,
    is_cut: bool,
    rows: u64,
}

/// Counts in the order of the due moments, so that the overdue tasks come first.
fn count(
    db: &Connection,
    destination: i64,
    moments: &[UnixMillis],
    most: u64,
) -> rusqlite::Result<WaitingCount> {
    let mut select = db.prepare_cached(sql::schedule::COUNT_WITHIN)?;
    let mut counted = WaitingCount::default();
    let mut after = i64::MIN;
    for moment in moments.iter().map(|moment| moment.0).chain([i64::MAX]) {
        // One row more tells whether there are more.
        let left = most - counted.rows;
        let found: i64 = select
            .query_row((destination, after, moment, rows(left as usize).saturating_add(1)), only)?;
        let found = found.unsigned_abs();
        counted.is_cut |= found > left;
        counted.rows += found.min(left);
        counted.due.push(counted.rows);
        after = moment;
    }
    counted.waiting = counted.due.pop().unwrap_or(0);
    Ok(counted)
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
