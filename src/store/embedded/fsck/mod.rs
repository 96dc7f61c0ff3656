//! `check`: walks the tables in pages, and judges each page within one transaction.
//!
//! | stage | checks |
//! |---|---|
//! | topics | they are registered, with all their lanes |
//! | rows | what a [`Check`] says in SQL |
//! | schedules | each row is where its task waits |
//! | tasks | each task stands in one place, which its rows name |
//! | recurring | each recurring schedule can be read, and a planner looks at it |
//! | counts | each lane has as many tasks as it counts |
//! | file | SQLite's own check of the file |
//!
//! A check without repair runs on the reader for scans, which cannot write. A repair judges and
//! repairs in one of the writer's transactions, by [`Repair`]s; a check without repair drops them.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};

use super::Embedded;
use super::rows::read_state_or;
use super::sql::check::{self, Check};
use super::sql::only;
use super::values::rows;
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State};
use crate::store::{CheckCursor, CheckStep, Finding, Flaw, Result};

mod recurring;
mod tasks;
mod topics;

/// The most rows per transaction.
const PAGE: usize = 500;

/// The most errors of the file that SQLite reports.
const MAX_DAMAGES: usize = 20;

enum CheckStage {
    Topics,
    Rows(&'static Check),
    Schedules,
    Tasks,
    Recurring,
    /// One lane at a time, because it may have many rows.
    Counts,
    File,
}

impl CheckStage {
    /// Rows per transaction.
    fn most(&self) -> usize {
        if matches!(self, Self::Counts) { 1 } else { PAGE }
    }
}

static STAGES: &[CheckStage] = &[
    CheckStage::Topics,
    CheckStage::Rows(&check::CALLED),
    CheckStage::Rows(&check::EARLIEST),
    CheckStage::Schedules,
    CheckStage::Tasks,
    CheckStage::Rows(&check::PROGRESS),
    CheckStage::Rows(&check::HISTORY),
    CheckStage::Rows(&check::NOTES),
    CheckStage::Rows(&check::EXPIRES),
    CheckStage::Rows(&check::EXPIRING),
    CheckStage::Rows(&check::EXPIRY),
    CheckStage::Rows(&check::KEYS),
    CheckStage::Rows(&check::ANSWERS),
    CheckStage::Rows(&check::COUNTER),
    CheckStage::Recurring,
    CheckStage::Counts,
    CheckStage::File,
];

/// The position of a check: a stage, and the key of the last row (empty at its beginning).
#[derive(Clone, Debug, Default)]
struct CheckPlace {
    stage: usize,
    after: Vec<Value>,
}

/// What repairs a flaw.
#[derive(Debug)]
enum Repair {
    /// A statement, with the key of its row.
    Row(&'static str, Vec<Value>),
    Task(Box<tasks::Sound>),
}

/// What one page has.
#[derive(Debug, Default)]
struct CheckPage {
    findings: Vec<Finding>,
    repairs: Vec<Repair>,
    rows: usize,
    /// The key of the last row.
    last: Vec<Value>,
}

impl CheckPage {
    fn find(&mut self, flaw: Flaw, lane: Option<Lane>, subject: impl ToString, repaired: bool) {
        self.findings.push(Finding { flaw, lane, subject: subject.to_string(), repaired });
    }
}

impl Embedded {
    pub(crate) async fn check(&self, from: CheckCursor, repair: bool) -> Result<CheckStep> {
        let mut place = from.into_place::<CheckPlace>()?.unwrap_or_default();
        let (at, now) = (place.clone(), self.clock.now());
        let stage = &STAGES[place.stage];
        // The file itself cannot be repaired, and checking it takes long.
        let page = if repair && !matches!(stage, CheckStage::File) {
            self.writes.run(PAGE, move |tx| look_and_mend(tx, &at)).await?
        } else {
            self.scans.run(move |db| look(db, &at, now)).await?
        };
        match page.rows == stage.most() {
            true => place.after = page.last,
            false => place = CheckPlace { stage: place.stage + 1, after: Vec::new() },
        }
        let rows_if = |is_counted| if is_counted { page.rows as u64 } else { 0 };
        let findings = page.findings.into_iter();
        Ok(CheckStep {
            findings: findings.map(|f| Finding { repaired: repair && f.repaired, ..f }).collect(),
            tasks: rows_if(matches!(stage, CheckStage::Tasks)),
            lanes: rows_if(matches!(stage, CheckStage::Counts)),
            next: (place.stage < STAGES.len()).then(|| CheckCursor::at(place)),
        })
    }
}

fn look(db: &Connection, place: &CheckPlace, now: UnixMillis) -> rusqlite::Result<CheckPage> {
    let stage = &STAGES[place.stage];
    let (after, most) = (&*place.after, stage.most());
    match stage {
        CheckStage::Topics => topics::look(db),
        CheckStage::Rows(check) => look_at_rows(db, check, after, most),
        CheckStage::Schedules => look_at_rows(db, &check::SCHEDULE, after, most),
        CheckStage::Tasks => tasks::look(db, after, most, now),
        CheckStage::Recurring => recurring::look(db, after, now),
        CheckStage::Counts => look_at_rows(db, &check::COUNTS, after, most),
        CheckStage::File => look_at_file(db),
    }
}

fn look_and_mend(tx: &mut WriteTx<'_>, place: &CheckPlace) -> rusqlite::Result<CheckPage> {
    // The check reads the tables, and the repairs write them, without the transaction's cache.
    tx.forget_names()?;
    let mut page = look(tx.db, place, tx.now)?;
    let is_of_schedule = matches!(STAGES[place.stage], CheckStage::Schedules);
    for repair in std::mem::take(&mut page.repairs) {
        match repair {
            Repair::Task(sound) => sound.write(tx)?,
            Repair::Row(statement, key) => match key[..] {
                [Value::Integer(destination), Value::Integer(due), Value::Integer(id)]
                    if is_of_schedule =>
                {
                    // In one transaction: this may have been the task's only row.
                    take_off(tx, destination, due, id)?;
                    page.findings.extend(put_right(tx, id)?);
                }
                _ => run(tx, statement, &key)?,
            },
        }
    }
    Ok(page)
}

/// Takes a task off a schedule.
fn take_off(tx: &mut WriteTx<'_>, destination: i64, due: i64, id: i64) -> rusqlite::Result<()> {
    run(tx, check::SCHEDULE.repair, &[destination, due, id].map(Value::from))?;
    tx.left(destination, UnixMillis(due))
}

/// Puts a task where its rows say, if there is such a task. Returns what this repaired.
fn put_right(tx: &mut WriteTx<'_>, id: i64) -> rusqlite::Result<Vec<Finding>> {
    let page = tasks::look(tx.db, &[id.saturating_sub(1).into()], 1, tx.now)?;
    if page.last != [Value::Integer(id)] {
        return Ok(Vec::new());
    }
    for repair in page.repairs {
        if let Repair::Task(sound) = repair {
            sound.write(tx)?;
        }
    }
    Ok(page.findings.into_iter().filter(|found| found.repaired).collect())
}

/// Runs the repair of a [`Check`].
fn run(tx: &mut WriteTx<'_>, statement: &str, key: &[Value]) -> rusqlite::Result<()> {
    let mut statement = tx.db.prepare_cached(statement)?;
    let mut deleted = statement.query(params_from_iter(key))?;
    while let Some(row) = deleted.next()? {
        if let Some(lane) = row.get(0)? {
            tx.deltas.count(lane, read_state_or(row, 1, State::Scheduled)?, -1);
        }
    }
    Ok(())
}

/// Judges a page of rows. `judge` returns the key of its row.
fn walk(
    db: &Connection,
    select: &str,
    after: &[Value],
    most: usize,
    mut judge: impl FnMut(&mut CheckPage, &Row<'_>) -> rusqlite::Result<Vec<Value>>,
) -> rusqlite::Result<CheckPage> {
    let mut page = CheckPage::default();
    let mut select = db.prepare_cached(select)?;
    let mut after = after.to_vec();
    // The first column of each key decides.
    after.resize(select.parameter_count() - 1, Value::Integer(i64::MIN));
    let mut found = select.query(params_from_iter(after.into_iter().chain([rows(most).into()])))?;
    while let Some(row) = found.next()? {
        page.rows += 1;
        page.last = judge(&mut page, row)?;
    }
    Ok(page)
}

fn look_at_rows(
    db: &Connection,
    check: &Check,
    after: &[Value],
    most: usize,
) -> rusqlite::Result<CheckPage> {
    walk(db, check.select, after, most, |page, row| {
        let key = (4..row.as_ref().column_count()).map(|column| match row.get_ref(column)? {
            ValueRef::Integer(number) => Ok(number.into()),
            _ => Ok(read_text(row, column)?.unwrap_or_default().into()),
        });
        let key: Vec<Value> = key.collect::<rusqlite::Result<_>>()?;
        if let Some(flaw) = read_text(row, 0)? {
            let flaw = Flaw::from_name(&flaw).expect("the statements name flaws");
            let subject = read_text(row, 3)?.unwrap_or_default();
            page.find(flaw, read_lane(row, (1, 2))?, subject, true);
            page.repairs.push(Repair::Row(check.repair, key.clone()));
        }
        Ok(key)
    })
}

fn look_at_file(db: &Connection) -> rusqlite::Result<CheckPage> {
    let mut page = CheckPage::default();
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({MAX_DAMAGES})"))?;
    for said in statement.query_map([], only::<String>)? {
        let said = said?;
        if said != "ok" {
            page.find(Flaw::Damaged, None, said, false);
        }
    }
    Ok(page)
}

/// Whether the number is a valid moment.
fn is_moment(ms: i64) -> bool {
    (0..1 << 53).contains(&ms)
}

/// A lane by the columns of its topic and shard; `None` if there is no such row, or its topic
/// cannot be read.
fn read_lane(row: &Row<'_>, (topic, shard): (usize, usize)) -> rusqlite::Result<Option<Lane>> {
    let (topic, shard) = (read_text(row, topic)?, row.get::<_, Option<i64>>(shard)?);
    let shard = shard.and_then(|shard| u16::try_from(shard).ok());
    let topic = topic.and_then(|topic| topic.parse().ok());
    Ok(topic.zip(shard).map(|(topic, shard)| Lane { topic, shard }))
}

/// A column as text, whatever bytes it holds.
fn read_text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        text => Some(String::from_utf8_lossy(text.as_bytes()?).into_owned()),
    })
}
