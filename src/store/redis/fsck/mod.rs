//! `check`: the script `lua/fsck.lua` judges and repairs a lane, page by page.
//!
//! ```text
//! scan (keys, registry, counter) ─▶ per lane: destinations ─▶ schedules ─▶ the rest ─▶ next lane
//! ```
//!
//! Live traffic cannot look like a flaw. Keys are scanned before the registry is read: a lane among
//! the keys was registered before its first task, or is being registered by the add that found it
//! empty. So a missing topic is looked up once more. Ids are read before the counter, so an id that
//! was read had been allocated.

use std::collections::BTreeSet;

use deadpool_redis::redis::{Cmd, FromRedisValue, cmd};

use self::scan::{LaneAhead, check_counter, lossy};
use super::answer::corrupt;
use super::script;
use super::session::Session;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use crate::model::task::{ScheduleName, TaskId};
use crate::store::{CheckCursor, CheckStep, Finding, Flaw, Result};

pub(crate) mod scan;

/// The approximate number of elements that one script checks.
const COUNT: usize = 100;
/// How many destinations one script checks.
const DESTINATIONS: usize = 250;
/// How many scripts are sent together.
const TOGETHER: usize = 8;

/// What is behind the schedules of a lane, the last one first.
const OTHERS: &str = "expired cancelled dead delivered plans recurring notes windows used keys \
                      expiries leased entries bodies";

/// The position of a check.
#[derive(Debug)]
struct ScanPlace {
    /// The lanes that remain; the last one is next, or in progress.
    lanes: Vec<LaneAhead>,
    /// The remaining pages of the lane in progress; the last one is next.
    pages: Vec<ScanPage>,
}

#[derive(Debug)]
struct ScanPage {
    structure: &'static str,
    cursor: String,
    /// The destinations to check, or the one of a schedule.
    names: Vec<String>,
}

impl ScanPage {
    fn first(structure: &'static str, names: &[String]) -> Self {
        Self { structure, cursor: "0".into(), names: names.to_vec() }
    }

    fn is_schedule(&self) -> bool {
        self.structure == "schedule"
    }
}

impl Session {
    pub(crate) async fn check(&self, from: CheckCursor, repair: bool) -> Result<CheckStep> {
        let mut checked = CheckStep::default();
        let place = match from.into_place::<ScanPlace>()? {
            None => {
                let (lanes, findings) = scan::survey(self, repair).await?;
                checked.findings = findings;
                ScanPlace { lanes, pages: Vec::new() }
            }
            Some(mut place) => {
                step(self, &mut place, repair, &mut checked).await?;
                place
            }
        };
        checked.next = (!place.lanes.is_empty()).then(|| CheckCursor::at(place));
        Ok(checked)
    }
}

/// Checks some pages of the next lane.
async fn step(
    session: &Session,
    place: &mut ScanPlace,
    repair: bool,
    checked: &mut CheckStep,
) -> Result<()> {
    let ScanPlace { lanes, pages } = place;
    let Some(ahead) = lanes.last() else { return Ok(()) };
    if pages.is_empty() {
        *pages = pages_of(session, ahead).await?;
    }
    // A task that stands on a wrong schedule is moved before the walk over records could find it
    // without a place, and a wrong destination is reported before such a move corrects it.
    let is_schedule = pages.last().is_some_and(ScanPage::is_schedule);
    let now = pages.iter().rev().take(TOGETHER).take_while(|p| p.is_schedule() == is_schedule);
    let mut now = pages.split_off(pages.len() - now.count());
    now.reverse();
    let calls: Vec<Cmd> = now.iter().map(|page| call(session, ahead, page, repair)).collect();
    // A repair whose answer was lost is not repeated: it would find nothing, and the first repair
    // would go unreported.
    let repeat = if repair { Repeat::Never } else { Repeat::Once };
    let answers = session.servers.run(Purpose::Working, &calls, repeat).await;
    let mut highest = 0;
    for (page, answer) in now.into_iter().zip(answers) {
        type Answer = (String, u64, u64, Vec<(String, Vec<u8>, bool)>, Vec<Vec<u8>>);
        let (cursor, tasks, last, found, names) =
            Answer::from_redis_value(answer?).map_err(corrupt)?;
        for (flaw, subject, repaired) in found {
            let lane = Some(ahead.lane.clone());
            let flaw = Flaw::from_name(&flaw)?;
            checked.findings.push(Finding { flaw, lane, subject: lossy(subject), repaired });
        }
        checked.findings.extend(names.iter().filter_map(|name| misplaced(ahead, lossy(name))));
        checked.tasks += tasks;
        highest = highest.max(last);
        if cursor != "0" {
            pages.push(ScanPage { cursor, ..page });
        }
    }
    if highest > 0 {
        let of = Some((&ahead.lane, highest));
        checked.findings.extend(check_counter(session, of, repair).await?);
    }
    if pages.is_empty() {
        lanes.pop();
        checked.lanes += 1;
    }
    Ok(())
}

/// The first page of every structure; the last one in the list is next.
async fn pages_of(session: &Session, ahead: &LaneAhead) -> Result<Vec<ScanPage>> {
    let listed = cmd("ZRANGE").arg(session.keys.destinations(&ahead.lane)).arg(0).arg(-1).take();
    let listed = Vec::<Vec<u8>>::from_redis_value(session.working.run_one(listed).await?);
    let listed = listed.map_err(corrupt)?.into_iter().map(lossy);
    let names: BTreeSet<String> = listed.chain(ahead.schedules.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let others = OTHERS.split(' ').map(|structure| ScanPage::first(structure, &[]));
    let schedules = names.chunks(1).map(|name| ScanPage::first("schedule", name));
    let destinations =
        names.chunks(DESTINATIONS).map(|names| ScanPage::first("destinations", names));
    Ok(others.chain(schedules).chain(destinations).collect())
}

fn call(session: &Session, ahead: &LaneAhead, page: &ScanPage, repair: bool) -> Cmd {
    let mut keys = session.keys.of_script(&ahead.lane, 18);
    keys.push(session.keys.aside(&ahead.lane));
    let script = if repair { &script::FSCK_REPAIR } else { &script::FSCK_LOOK };
    session
        .call(script, &keys)
        .arg(page.structure)
        .arg(&page.cursor)
        .arg(COUNT)
        .arg(u8::from(repair))
        .arg(ahead.shards)
        .arg(ahead.lane.shard)
        .arg(TaskId::AHEAD.as_secs())
        .arg(&page.names)
        .take()
}

/// A finding if the name of a recurring schedule leads to another lane.
fn misplaced(ahead: &LaneAhead, subject: String) -> Option<Finding> {
    let LaneAhead { lane, shards, .. } = ahead;
    let leads_here = |name: ScheduleName| name.lane_in(&lane.topic, *shards) == *lane;
    let is_misplaced = *shards > 0 && !subject.parse().is_ok_and(leads_here);
    let (flaw, lane) = (Flaw::ScheduleMisplaced, Some(lane.clone()));
    is_misplaced.then_some(Finding { flaw, lane, subject, repaired: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_name_flaws_that_there_are() {
        let scripts = script::sent().into_iter().filter(|(name, _)| name.starts_with("fsck"));
        // Every quoted word with a hyphen.
        let is_name = |word: &&str| {
            word.contains('-')
                && word.starts_with(char::is_alphabetic)
                && word.chars().all(|c| c == '-' || c.is_lowercase())
        };
        let names: BTreeSet<&str> = scripts
            .flat_map(|(_, code)| code.split('\'').skip(1).step_by(2))
            .filter(is_name)
            .collect();
        assert!(names.len() >= 20, "{names:?}");
        for name in names {
            Flaw::from_name(name).unwrap();
        }
    }
}
