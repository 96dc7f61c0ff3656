//! What a write works with: the open transaction, its now, and the numbers of lanes and
//! destinations.
//!
//! Names of lanes and destinations are stored once, and other tables have their numbers.
//! [`IdCache`] keeps the numbers, and each destination's earliest due moment, between batches. The
//! latter are written once per transaction, not once per task.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rusqlite::{CachedStatement, Connection, OptionalExtension};

use self::count_deltas::CountDeltas;
use self::hints::{Earliest, TxHints};
use self::unsynced::UnsyncedTasks;
use super::sql::destination::{released, schedule};
use super::sql::{self, only};
use super::values::read_name;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, TaskId, Topic};
use crate::store::TopicEntry;

pub(crate) mod count_deltas;
pub(crate) mod counts;
pub(crate) mod hints;
pub(crate) mod unsynced;
mod visibility;

/// What the writer caches between transactions. Dropped when one fails.
#[derive(Debug, Default)]
pub(crate) struct IdCache {
    lanes: HashMap<Lane, i64>,
    /// The topics' registered numbers of lanes.
    shards: HashMap<Topic, u16>,
    destinations: HashMap<(i64, Destination), i64>,
    schedules: HashMap<i64, EarliestDue>,
    /// Schedules whose earliest moment differs from the table.
    changed: Vec<i64>,
    last_id: Option<TaskId>,
    /// Ids up to this one may be drawn without a write.
    reserved: Option<TaskId>,
    /// Destinations whose names cannot be read; each is logged once.
    nameless: HashSet<i64>,
}

/// How many ids are reserved at once, which saves a page in nearly every transaction. Ids that
/// remain when the process ends are never drawn.
const RESERVED: u64 = 4_096;

/// Destinations from this number on are removed with their last task: they are hosts, and callers
/// may name any number. Services have lower numbers and stay, so their tasks need no entry in the
/// index that finds a destination's last task (`task_by_host`).
const LEAVING: i64 = 1 << 40;

/// How many services stay; further ones are numbered like hosts.
const MOST_STAYING: i64 = 65_536;

/// A destination's earliest due moment.
#[derive(Debug)]
struct EarliestDue {
    called: bool,
    earliest: Option<UnixMillis>,
    changed: bool,
    /// The first task left, so the moment must be looked up.
    stale: bool,
}

/// An open transaction.
pub(crate) struct WriteTx<'a> {
    pub(crate) db: &'a Connection,
    /// The store's now, the same for all work of the transaction.
    pub(crate) now: UnixMillis,
    names: &'a mut IdCache,
    /// Prepared statements that run for each task.
    in_hand: RefCell<Vec<(&'static str, CachedStatement<'a>)>>,
    hints: Earliest,
    /// Those to be sent once the commit is durable.
    hints_once_durable: Earliest,
    /// The lanes whose claims passed over tasks that are not durable.
    passed_over: Earliest,
    /// Whether a task that is put on a schedule now is handed out only once the commit is durable.
    pub(crate) awaits_sync: bool,
    /// Whether the answer of the current job waits until the commit is durable, although the job
    /// may be undone.
    pub(crate) answer_waits: bool,
    /// The tasks that are hidden from workers' claims. `None` if there are no claims.
    pub(crate) unsynced: Option<&'a mut UnsyncedTasks>,
    /// Whether more ids are to be reserved.
    reserves: bool,
    pub(crate) deltas: CountDeltas,
    /// The bytes of the dead-letter calls that were stored.
    pub(crate) called: usize,
    /// Whether a write found the disk full: then work that can wait is left for later.
    pub(crate) is_without_room: bool,
}

impl<'a> WriteTx<'a> {
    pub(crate) fn new(db: &'a Connection, names: &'a mut IdCache, now: UnixMillis) -> Self {
        Self {
            db,
            now,
            names,
            in_hand: RefCell::default(),
            hints: Earliest::default(),
            hints_once_durable: Earliest::default(),
            passed_over: Earliest::default(),
            awaits_sync: false,
            answer_waits: false,
            unsynced: None,
            reserves: false,
            deltas: CountDeltas::default(),
            called: 0,
            is_without_room: false,
        }
    }

    /// Runs a statement that is kept until the transaction ends. Finding one in the connection's
    /// cache, by its text, and returning it costs a fifth of the work on a row.
    pub(crate) fn with<T>(
        &self,
        statement: &'static str,
        run: impl FnOnce(&mut CachedStatement<'a>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut prepared = match self.take_in_hand(statement) {
            Some(prepared) => prepared,
            None => self.db.prepare_cached(statement)?,
        };
        let done = run(&mut prepared);
        self.in_hand.borrow_mut().push((statement, prepared));
        done
    }

    /// The statement is out of the list while it runs, because its work may ask for others, or for
    /// the same one.
    fn take_in_hand(&self, statement: &'static str) -> Option<CachedStatement<'a>> {
        let mut in_hand = self.in_hand.borrow_mut();
        let at = in_hand.iter().position(|(text, _)| std::ptr::eq(*text, statement))?;
        Some(in_hand.swap_remove(at).1)
    }

    /// Writes what is cached. Returns the hints.
    pub(crate) fn finish(mut self) -> rusqlite::Result<TxHints> {
        self.write_held_back()?;
        Ok(self.into_hints())
    }

    /// The table has the last id that may have been drawn.
    fn write_last_id(&mut self) -> rusqlite::Result<()> {
        if std::mem::take(&mut self.reserves)
            && let Some(last) = self.names.last_id
        {
            self.names.reserved = Some(TaskId(last.0 + RESERVED).min(TaskId::MAX));
            self.db.prepare_cached(sql::meta::SET_LAST_ID)?.execute([self.names.reserved])?;
        }
        Ok(())
    }

    /// Writes what is cached, and drops the cache, because the tables are about to be read and
    /// written directly.
    pub(crate) fn forget_names(&mut self) -> rusqlite::Result<()> {
        self.write_held_back()?;
        *self.names = IdCache::default();
        Ok(())
    }

    fn write_held_back(&mut self) -> rusqlite::Result<()> {
        self.write_earliest()?;
        self.write_counts()?;
        self.write_last_id()
    }

    /// Draws the next id, or the next one of a shard: increasing, and never below the clock's
    /// second.
    pub(crate) fn draw_id(
        &mut self,
        topic: &TopicEntry,
        shard: Option<u16>,
    ) -> rusqlite::Result<TaskId> {
        let last = self.last_id()?;
        let seconds = u64::try_from(self.now.0 / 1_000).unwrap_or(0);
        let next = last.0.max(seconds * TaskId::PER_SECOND) + 1;
        let shards = u64::from(topic.shards.max(1));
        // The distance to the next id with this remainder.
        let further = shard.map_or(0, |shard| (u64::from(shard) + shards - next % shards) % shards);
        let id = TaskId(next + further);
        self.names.last_id = Some(id);
        self.reserves |= Some(id) > self.names.reserved;
        Ok(id)
    }

    /// Draws no id up to this one any more.
    pub(crate) fn skip_ids_to(&mut self, id: TaskId) -> rusqlite::Result<()> {
        let last = self.last_id()?.max(id);
        self.names.last_id = Some(last);
        self.reserves |= Some(last) > self.names.reserved;
        Ok(())
    }

    fn last_id(&self) -> rusqlite::Result<TaskId> {
        match self.names.last_id {
            Some(last) => Ok(last),
            None => self.db.query_row(sql::meta::LAST_ID, [], only),
        }
    }

    /// The number of a lane that has held tasks.
    pub(crate) fn find_lane(&mut self, lane: &Lane) -> rusqlite::Result<Option<i64>> {
        if let Some(number) = self.names.lanes.get(lane) {
            return Ok(Some(*number));
        }
        let found = lane_number(self.db, lane)?;
        if let Some(number) = found {
            self.names.lanes.insert(lane.clone(), number);
        }
        Ok(found)
    }

    /// The lane's number. A new lane gets one, and its topic is registered if necessary.
    pub(crate) fn lane(&mut self, lane: &Lane, entry: &TopicEntry) -> rusqlite::Result<i64> {
        if let Some(number) = self.find_lane(lane)? {
            return Ok(number);
        }
        self.register(entry, None)?;
        self.db.prepare_cached(sql::lane::INSERT)?.execute((lane.topic.as_str(), lane.shard))?;
        let number = self.db.last_insert_rowid();
        self.names.lanes.insert(lane.clone(), number);
        Ok(number)
    }

    /// Whether a topic is registered with another number of lanes than its entry has.
    pub(crate) fn is_stale(&mut self, entry: &TopicEntry) -> rusqlite::Result<bool> {
        if let Some(shards) = self.names.shards.get(&entry.topic) {
            return Ok(*shards != entry.shards);
        }
        // A number that cannot be read is not another number.
        let registered: Option<u16> = self
            .db
            .prepare_cached(sql::topic::SHARDS)?
            .query_row([entry.topic.as_str()], |row| Ok(only(row).ok()))
            .optional()?
            .flatten();
        if let Some(shards) = registered {
            self.names.shards.insert(entry.topic.clone(), shards);
        }
        Ok(registered.is_some_and(|shards| shards != entry.shards))
    }

    /// Registers a topic unless it is registered, with the token that creates it.
    pub(crate) fn register(&self, entry: &TopicEntry, token: Option<&str>) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::topic::INSERT)?.execute((
            entry.topic.as_str(),
            entry.shards,
            token,
        ))?;
        Ok(())
    }

    /// The number of a destination for which the lane has had tasks.
    pub(crate) fn find_destination(
        &mut self,
        lane: i64,
        name: &Destination,
    ) -> rusqlite::Result<Option<i64>> {
        let names = &mut *self.names;
        let vacant = match names.destinations.entry((lane, name.clone())) {
            Entry::Occupied(known) => return Ok(Some(*known.get())),
            Entry::Vacant(vacant) => vacant,
        };
        let found: Option<i64> = self
            .db
            .prepare_cached(sql::destination::ID)?
            .query_row((lane, name.as_str()), only)
            .optional()?;
        Ok(found.map(|number| *vacant.insert(number)))
    }

    /// The destination's number; a new destination gets one.
    pub(crate) fn destination(&mut self, lane: i64, name: &Destination) -> rusqlite::Result<i64> {
        if let Some(number) = self.find_destination(lane, name)? {
            return Ok(number);
        }
        let number = self.draw_destination(name)?;
        self.db.prepare_cached(sql::destination::INSERT)?.execute((
            number,
            lane,
            name.as_str(),
            !name.is_pull(),
        ))?;
        self.names.destinations.insert((lane, name.clone()), number);
        Ok(number)
    }

    fn draw_destination(&self, name: &Destination) -> rusqlite::Result<i64> {
        let next = |first: i64, last: i64| {
            self.db.prepare_cached(sql::destination::NEXT_ID)?.query_row((first, last), only::<i64>)
        };
        if !name.is_host() {
            let number = next(1, LEAVING - 1)?;
            if number <= MOST_STAYING {
                return Ok(number);
            }
        }
        next(LEAVING, i64::MAX)
    }

    /// Called when a task of the destination was removed, or got another destination. Removes a
    /// host's destination with its last task.
    pub(crate) fn release_destination(&mut self, number: i64) -> rusqlite::Result<()> {
        if number < LEAVING {
            return Ok(());
        }
        let gone = self
            .db
            .prepare_cached(released::SQL)?
            .query_row([number], |row| {
                Ok((row.get(released::lane)?, read_name(row, released::name).ok()))
            })
            .optional()?;
        if let Some((lane, name)) = gone {
            self.names.schedules.remove(&number);
            name.map(|name| self.names.destinations.remove(&(lane, name)));
        }
        Ok(())
    }

    /// A destination's name. If it cannot be read, its tasks wait, because their receiver is
    /// unknown.
    pub(crate) fn readable(
        &mut self,
        number: i64,
        name: rusqlite::Result<Destination>,
    ) -> Option<Destination> {
        if let Err(error) = &name
            && self.names.nameless.insert(number)
        {
            tracing::error!(
                "The name of destination {number} cannot be read; its tasks wait: {error}"
            );
        }
        name.ok()
    }

    /// Called when a task was put on the destination's schedule.
    pub(crate) fn joined(&mut self, destination: i64, due: UnixMillis) -> rusqlite::Result<()> {
        let schedule = self.schedule(destination)?;
        if schedule.earliest.is_none_or(|earliest| due < earliest) {
            schedule.earliest = Some(due);
            self.mark_changed(destination);
        }
        Ok(())
    }

    /// Called when a task left the destination's schedule.
    pub(crate) fn left(&mut self, destination: i64, due: UnixMillis) -> rusqlite::Result<()> {
        let schedule = self.schedule(destination)?;
        if schedule.earliest.is_none_or(|earliest| due <= earliest) {
            schedule.stale = true;
            self.mark_changed(destination);
        }
        Ok(())
    }

    /// Writes the earliest moments that changed. Must run before they are read from the tables.
    pub(crate) fn write_earliest(&mut self) -> rusqlite::Result<()> {
        for destination in std::mem::take(&mut self.names.changed) {
            let Some(schedule) = self.names.schedules.get_mut(&destination) else { continue };
            if schedule.stale {
                schedule.earliest = self
                    .db
                    .prepare_cached(sql::schedule::EARLIEST)?
                    .query_row([destination], only)?;
            }
            (schedule.changed, schedule.stale) = (false, false);
            self.db
                .prepare_cached(sql::destination::SET_EARLIEST)?
                .execute((schedule.earliest, destination))?;
        }
        Ok(())
    }

    fn mark_changed(&mut self, destination: i64) {
        if let Some(schedule) = self.names.schedules.get_mut(&destination)
            && !schedule.changed
        {
            schedule.changed = true;
            self.names.changed.push(destination);
        }
    }

    /// The earliest due moment of a called destination. `None` also if its tasks are pulled. Reads
    /// what [`Self::write_earliest`] has written.
    pub(crate) fn earliest_of(&mut self, destination: i64) -> rusqlite::Result<Option<UnixMillis>> {
        let EarliestDue { called, earliest, .. } = *self.schedule(destination)?;
        Ok(earliest.filter(|_| called))
    }

    fn schedule(&mut self, destination: i64) -> rusqlite::Result<&mut EarliestDue> {
        match self.names.schedules.entry(destination) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let schedule = self
                    .db
                    .prepare_cached(schedule::SQL)?
                    .query_row([destination], |row| {
                        let (called, earliest) =
                            (row.get(schedule::called)?, row.get(schedule::earliest)?);
                        Ok(EarliestDue { called, earliest, changed: false, stale: false })
                    })
                    .optional()?;
                // In a damaged file, a lease may lack its task, and so its destination. It blocks
                // no claim.
                let unknown =
                    EarliestDue { called: true, earliest: None, changed: false, stale: false };
                Ok(vacant.insert(schedule.unwrap_or(unknown)))
            }
        }
    }
}

/// The number of a lane that has held tasks.
pub(crate) fn lane_number(db: &Connection, lane: &Lane) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached(sql::lane::ID)?.query_row((lane.topic.as_str(), lane.shard), only).optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "SELECT 1 + ?";
    const OTHER: &str = "SELECT 10 + ?";

    fn add(tx: &WriteTx<'_>, statement: &'static str, number: i64) -> rusqlite::Result<i64> {
        tx.with(statement, |select| select.query_row([number], |row| row.get(0)))
    }

    /// It panicked, and that ended the only thread that writes.
    #[test]
    fn a_statement_may_run_within_another_and_within_itself() {
        let db = Connection::open_in_memory().unwrap();
        let mut names = IdCache::default();
        let tx = WriteTx::new(&db, &mut names, UnixMillis(0));
        for inner in [OTHER, ONE] {
            let sum = tx.with(ONE, |outer| {
                let number = add(&tx, inner, 5)?;
                outer.query_row([number], |row| row.get::<_, i64>(0))
            });
            assert_eq!(sum.unwrap(), if inner == ONE { 7 } else { 16 });
        }
    }

    #[test]
    fn a_statement_stays_in_hand_whether_or_not_it_succeeds() {
        let db = Connection::open_in_memory().unwrap();
        let mut names = IdCache::default();
        let tx = WriteTx::new(&db, &mut names, UnixMillis(0));
        let in_hand = || tx.in_hand.borrow().iter().map(|(text, _)| *text).collect::<Vec<_>>();
        add(&tx, ONE, 1).unwrap();
        add(&tx, OTHER, 1).unwrap();
        let failed = tx.with(ONE, |select| select.query_row([1], |row| row.get::<_, i64>(7)));
        failed.unwrap_err();
        assert_eq!(in_hand(), [OTHER, ONE]);
        assert_eq!(add(&tx, ONE, 1).unwrap(), 2);
        assert_eq!(in_hand(), [OTHER, ONE]);
    }
}
