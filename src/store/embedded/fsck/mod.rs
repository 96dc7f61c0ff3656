//! `check`: walks the tables in pages, and judges each page within one transaction.
//!
//! | stage | checks |
//! |---|---|
//! | names | topics, lanes, destinations, the counter of ids |
//! | schedules | each row is where its task waits |
//! | tasks | each task stands in one place |
//! | progress, history, notes | each row has a task |
//! | expiring, expiry | each waiting task expires when it should, and nothing else |
//! | keys, answers | each key names its task; answers of idempotency keys can be read |
//! | recurring | each recurring schedule can be read, and a planner looks at it |
//! | counts | each lane has as many tasks as it counts |
//! | file | SQLite's own check of the file |
//!
//! A check without repair runs on the reader for scans, which cannot write. A repair judges and
//! repairs in one of the writer's transactions, by [`Remedy`]s; a check without repair drops them.

use std::collections::HashSet;

use rusqlite::Connection;

use super::Embedded;
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, TaskId};
use crate::store::{Checked, Cursor, Finding, Flaw, Result};

mod counts;
mod expiry;
mod keys;
mod names;
mod recurring;
mod remedy;
mod schedules;
mod strays;
mod tasks;

use remedy::Remedy;

/// Rows per transaction.
const PAGE: usize = 500;

/// No moment is beyond this.
const FAR: i64 = 1 << 53;

impl Embedded {
    pub(crate) async fn check(&self, from: Cursor, repair: bool) -> Result<Checked> {
        check(self, from, repair).await
    }
}

/// The position of a check.
#[derive(Debug)]
struct Place {
    stage: Stage,
    /// Tasks with a row in the wrong place of `schedule`: they do stand somewhere.
    reported: HashSet<TaskId>,
}

#[derive(Clone, Debug)]
enum Stage {
    Names,
    Schedules { after: (i64, i64, i64) },
    Tasks { after: i64 },
    Progress { after: i64 },
    History { after: i64 },
    Notes { after: i64 },
    Expiring { after: i64 },
    Expiry { after: (i64, i64, i64) },
    Keys { after: (i64, String) },
    Answers { after: (i64, String) },
    Recurring { after: (String, i64, String) },
    Counts { after: i64 },
    File,
}

/// The findings of one page.
#[derive(Debug, Default)]
struct Page {
    found: Vec<(Finding, Vec<Remedy>)>,
    tasks: u64,
    lanes: u64,
    /// Where the next page begins, if there may be more rows.
    rest: Option<Stage>,
}

impl Page {
    fn find(
        &mut self,
        flaw: Flaw,
        lane: Option<&Lane>,
        subject: impl ToString,
        remedies: Vec<Remedy>,
    ) {
        let repaired = !remedies.is_empty();
        let finding = Finding { flaw, lane: lane.cloned(), subject: subject.to_string(), repaired };
        self.found.push((finding, remedies));
    }
}

/// Whether the number is a valid moment.
fn is_moment(ms: i64) -> bool {
    (0..FAR).contains(&ms)
}

pub(super) async fn check(store: &Embedded, from: Cursor, repair: bool) -> Result<Checked> {
    let mut place = from
        .into_place::<Place>()?
        .unwrap_or_else(|| Place { stage: Stage::Names, reported: HashSet::new() });
    let (stage, now) = (place.stage.clone(), store.clock.now());
    let mut reported = std::mem::take(&mut place.reported);
    // The file itself cannot be repaired, and checking it takes long.
    let (page, reported) = if repair && !matches!(stage, Stage::File) {
        let work = move |tx: &mut WriteTx<'_>| {
            // The work runs again if the disk is full: nothing of the first time may remain.
            let mut reported = reported.clone();
            Ok((look_and_mend(tx, &stage, &mut reported)?, reported))
        };
        store.writes.run(PAGE, work).await?
    } else {
        let look = move |db: &Connection| Ok((look(db, &stage, &mut reported, now)?, reported));
        store.scans.run(look).await?
    };
    let next = page.rest.or_else(|| following(&place.stage));
    let findings = page
        .found
        .into_iter()
        .map(|(finding, _)| Finding { repaired: repair && finding.repaired, ..finding });
    Ok(Checked {
        findings: findings.collect(),
        tasks: page.tasks,
        lanes: page.lanes,
        next: next.map(|stage| Cursor::at(Place { stage, reported })),
    })
}

fn following(stage: &Stage) -> Option<Stage> {
    match stage {
        Stage::Names => Some(Stage::Schedules { after: (i64::MIN, i64::MIN, i64::MIN) }),
        Stage::Schedules { .. } => Some(Stage::Tasks { after: i64::MIN }),
        Stage::Tasks { .. } => Some(Stage::Progress { after: i64::MIN }),
        Stage::Progress { .. } => Some(Stage::History { after: i64::MIN }),
        Stage::History { .. } => Some(Stage::Notes { after: i64::MIN }),
        Stage::Notes { .. } => Some(Stage::Expiring { after: i64::MIN }),
        Stage::Expiring { .. } => Some(Stage::Expiry { after: (i64::MIN, i64::MIN, i64::MIN) }),
        Stage::Expiry { .. } => Some(Stage::Keys { after: (i64::MIN, String::new()) }),
        Stage::Keys { .. } => Some(Stage::Answers { after: (i64::MIN, String::new()) }),
        Stage::Answers { .. } => {
            Some(Stage::Recurring { after: (String::new(), i64::MIN, String::new()) })
        }
        Stage::Recurring { .. } => Some(Stage::Counts { after: i64::MIN }),
        Stage::Counts { .. } => Some(Stage::File),
        Stage::File => None,
    }
}

fn look_and_mend(
    tx: &mut WriteTx<'_>,
    stage: &Stage,
    reported: &mut HashSet<TaskId>,
) -> rusqlite::Result<Page> {
    // The check reads the tables, and the remedies write them, without the transaction's cache.
    tx.forget_names()?;
    let page = look(tx.db, stage, reported, tx.now)?;
    if page.found.is_empty() {
        return Ok(page);
    }
    counts::follow(tx.db)?;
    for remedy in page.found.iter().flat_map(|(_, remedies)| remedies) {
        remedy.apply(tx.db)?;
    }
    counts::unfollow(tx.db)?;
    Ok(page)
}

fn look(
    db: &Connection,
    stage: &Stage,
    reported: &mut HashSet<TaskId>,
    now: UnixMillis,
) -> rusqlite::Result<Page> {
    match stage {
        Stage::Names => names::look(db),
        Stage::Schedules { after } => schedules::look(db, *after, reported),
        Stage::Tasks { after } => tasks::look(db, *after, reported, now),
        Stage::Progress { after } => strays::look_progress(db, *after),
        Stage::History { after } => strays::look_history(db, *after),
        Stage::Notes { after } => strays::look_notes(db, *after),
        Stage::Expiring { after } => expiry::look_at_tasks(db, *after),
        Stage::Expiry { after } => expiry::look(db, *after),
        Stage::Keys { after } => keys::look(db, after),
        Stage::Answers { after } => keys::look_at_answers(db, after),
        Stage::Recurring { after } => recurring::look(db, after, now),
        Stage::Counts { after } => counts::look(db, *after),
        Stage::File => strays::look_file(db),
    }
}

/// A lane by the columns of its topic and shard; `None` if there is no such row, or its topic
/// cannot be read.
fn read_lane(
    row: &rusqlite::Row<'_>,
    (topic, shard): (usize, usize),
) -> rusqlite::Result<Option<Lane>> {
    let (topic, shard) = (read_text(row, topic)?, row.get::<_, Option<i64>>(shard)?);
    let shard = shard.and_then(|shard| u16::try_from(shard).ok());
    let topic = topic.and_then(|topic| topic.parse().ok());
    Ok(topic.zip(shard).map(|(topic, shard)| Lane { topic, shard }))
}

/// A text column, whatever bytes it holds.
fn read_text(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}
