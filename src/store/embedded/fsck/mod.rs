//! `check`: the tables walked in pages, each judged within one transaction.
//!
//! | stage | asks |
//! |---|---|
//! | names | topics, lanes, destinations, the counter of ids |
//! | schedules | is each row where its task waits? |
//! | tasks | does each body stand somewhere, and once? |
//! | progress, history, notes | has each row a body? |
//! | expiring, expiry | does each waiting task expire when it should, and nothing else? |
//! | keys, answers | does each key name a task that has it? Can be read what an idempotency key answered? |
//! | counts | are there as many tasks as each lane says? |
//! | file | is SQLite content with it? |
//!
//! A look runs on the reader for scans, which cannot write. A repair judges and mends in one of the
//! writer's transactions. What a judge asks for is a [`Remedy`], which a look drops.

use std::collections::HashSet;

use rusqlite::Connection;

use super::Embedded;
use super::ledger::Ledger;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, TaskId};
use crate::store::{Checked, Cursor, Finding, Flaw, Result};

mod counts;
mod expiry;
mod keys;
mod names;
mod remedy;
mod schedules;
mod strays;
mod tasks;

use remedy::Remedy;

/// Rows that one transaction looks at.
const PAGE: usize = 500;

/// Beyond this no moment is one.
const FAR: i64 = 1 << 53;

/// How far a check has come.
#[derive(Debug)]
struct Place {
    stage: Stage,
    /// Tasks whose schedule has a row in the wrong place: they do stand somewhere.
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
    Counts { after: i64 },
    File,
}

/// What one page shows.
#[derive(Debug, Default)]
struct Page {
    found: Vec<(Finding, Vec<Remedy>)>,
    tasks: u64,
    lanes: u64,
    /// The page's last row, if there may be more.
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

/// Whether a moment is one.
fn is_moment(ms: i64) -> bool {
    (0..FAR).contains(&ms)
}

pub(super) async fn check(store: &Embedded, from: Cursor, repair: bool) -> Result<Checked> {
    let mut place = from
        .into_place::<Place>()?
        .unwrap_or_else(|| Place { stage: Stage::Names, reported: HashSet::new() });
    let (stage, now) = (place.stage.clone(), store.clock.now());
    let mut reported = std::mem::take(&mut place.reported);
    // Nothing about the file itself can be mended, and its look takes long.
    let (page, reported) = if repair && !matches!(stage, Stage::File) {
        let work = move |ledger: &mut Ledger<'_>| {
            // Done anew if the disk is full: nothing of the first time stays.
            let mut reported = reported.clone();
            Ok((look_and_mend(ledger, &stage, &mut reported)?, reported))
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
        Stage::Answers { .. } => Some(Stage::Counts { after: i64::MIN }),
        Stage::Counts { .. } => Some(Stage::File),
        Stage::File => None,
    }
}

fn look_and_mend(
    ledger: &mut Ledger<'_>,
    stage: &Stage,
    reported: &mut HashSet<TaskId>,
) -> rusqlite::Result<Page> {
    // The judge reads the tables, and the remedies write them past what the ledger remembers.
    ledger.forget_names()?;
    let page = look(ledger.db, stage, reported, ledger.now)?;
    if page.found.is_empty() {
        return Ok(page);
    }
    counts::follow(ledger.db)?;
    for remedy in page.found.iter().flat_map(|(_, remedies)| remedies) {
        remedy.apply(ledger.db)?;
    }
    counts::unfollow(ledger.db)?;
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
