//! `check`: the scripts `lua/fsck_*.lua` walk each lane page by page, and judge an id over all
//! structures.
//!
//! ```text
//! scan (keys, registry, counter) ─▶ per lane: names ─▶ pages of every structure ─▶ next lane
//! ```
//!
//! Live traffic cannot look like a flaw. Keys are scanned before the registry is read: a lane among
//! the keys was registered before its first task, or is being registered by the add that found it
//! empty. So a missing topic is looked up once more. Ids are read before the counter, so an id that
//! was read had been allocated.

use std::collections::BTreeSet;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value};

use self::scan::LaneAhead;
use super::ids::counter;
use super::script::{self, Script};
use super::session::Session;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use crate::model::task::{Destination, Lane, ScheduleName, State, TaskId};
use crate::store::{Checked, Cursor, Error, Finding, Flaw, Result};

pub(crate) mod scan;

/// The approximate number of elements that one script checks.
const COUNT: usize = 100;
/// How many destinations one script checks.
const DESTINATIONS: usize = 250;
/// How many scripts are sent together.
const TOGETHER: usize = 8;

/// The position of a check.
#[derive(Debug, Default)]
struct Place {
    /// The lanes that remain; the last one is next, or in progress.
    lanes: Vec<LaneAhead>,
    /// The remaining pages of the lane in progress.
    pages: Vec<Page>,
    /// The names of the lane's destinations.
    names: Vec<String>,
}

#[derive(Debug)]
struct Page {
    structure: String,
    cursor: String,
    names: Vec<String>,
}

impl Page {
    fn first(structure: impl Into<String>) -> Self {
        Self { structure: structure.into(), cursor: "0".into(), names: Vec::new() }
    }
}

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("a script of fsck answered: {error}"))
}

impl Session {
    pub(crate) async fn check(&self, from: Cursor, repair: bool) -> Result<Checked> {
        let mut checked = Checked::default();
        let mut place = match from.into_place::<Place>()? {
            None => {
                let (lanes, findings) = scan::survey(self, repair).await?;
                checked.findings = findings;
                Place { lanes, ..Place::default() }
            }
            Some(mut place) => {
                step(self, &mut place, repair, &mut checked).await?;
                place
            }
        };
        if place.pages.is_empty() {
            checked.lanes += finish_lane(&mut place);
        }
        checked.next = (!place.lanes.is_empty()).then(|| Cursor::at(place));
        Ok(checked)
    }
}

/// Leaves the lane in progress, if there is one. Returns how many lanes were finished.
fn finish_lane(place: &mut Place) -> u64 {
    if std::mem::take(&mut place.names).is_empty() {
        return 0;
    }
    place.lanes.pop();
    1
}

/// Reads the names of the next lane, or some pages of the lane in progress.
async fn step(
    session: &Session,
    place: &mut Place,
    repair: bool,
    checked: &mut Checked,
) -> Result<()> {
    let Some(ahead) = place.lanes.last() else { return Ok(()) };
    if place.pages.is_empty() {
        let seen = run(session, ahead, vec![Page::first("lane")], &[], repair, checked).await?;
        let known: BTreeSet<String> = seen.into_iter().flat_map(|answer| answer.names).collect();
        place.names = known
            .into_iter()
            .chain(ahead.schedules.clone())
            .chain([Destination::pull().to_string()])
            .collect();
        place.names.sort_unstable();
        place.names.dedup();
        place.pages = pages_of(&place.names);
        return Ok(());
    }
    // A repair of a task also corrects its destination, so a wrong destination must be reported
    // first.
    let mut now = place.pages.split_off(place.pages.len().saturating_sub(TOGETHER));
    now.reverse();
    let answers = run(session, ahead, now, &place.names, repair, checked).await?;
    let highest = answers.iter().filter_map(|answer| answer.highest).max();
    let beyond = answers.iter().filter_map(|answer| answer.beyond).max();
    place.pages.extend(answers.into_iter().filter_map(|answer| answer.rest));
    if let Some(highest) = highest {
        check_counter(session, &ahead.lane, highest, repair, checked).await?;
    }
    if let Some(beyond) = beyond {
        // This id was never drawn. A counter beyond it would leave no room for other ids.
        check_counter(session, &ahead.lane, beyond, false, checked).await?;
    }
    Ok(())
}

/// The first page of every structure; the last one in the list is next.
fn pages_of(names: &[String]) -> Vec<Page> {
    let schedules = names.iter().map(|name| Page::first(format!("schedule:{name}")));
    let ended = State::ALL
        .into_iter()
        .filter(|state| state.is_final())
        .map(|state| Page::first(state.as_str()));
    let others = [
        "plans",
        "recurring",
        "notes",
        "windows",
        "used",
        "keys",
        "expiries",
        "leased",
        "entries",
        "bodies",
    ]
    .map(Page::first);
    let destinations = names
        .chunks(DESTINATIONS)
        .map(|names| Page { names: names.to_vec(), ..Page::first("destinations") });
    schedules.chain(ended).chain(others).chain(destinations).collect()
}

/// What a script reports of one page.
struct Seen {
    rest: Option<Page>,
    highest: Option<TaskId>,
    /// The highest id that is beyond any counter.
    beyond: Option<TaskId>,
    names: Vec<String>,
}

async fn run(
    session: &Session,
    ahead: &LaneAhead,
    pages: Vec<Page>,
    all_names: &[String],
    repair: bool,
    checked: &mut Checked,
) -> Result<Vec<Seen>> {
    let calls: Vec<Cmd> =
        pages.iter().map(|page| call(session, ahead, page, all_names, repair)).collect();
    // A repair whose answer was lost is not repeated: it would find nothing, and the first repair
    // would go unreported.
    let repeat = if repair { Repeat::Never } else { Repeat::Once };
    let answers = session.servers.run(Purpose::Working, &calls, repeat).await;
    pages
        .into_iter()
        .zip(answers)
        .map(|(page, answer)| read(page, answer?, ahead, checked))
        .collect()
}

/// The script that checks a structure, and the one that also repairs it.
fn scripts_for(structure: &str) -> [&'static Script; 2] {
    match structure {
        "lane" => [&script::FSCK_LANE_LOOK, &script::FSCK_LANE_REPAIR],
        "destinations" => [&script::FSCK_DESTINATIONS_LOOK, &script::FSCK_DESTINATIONS_REPAIR],
        "bodies" => [&script::FSCK_BODIES_LOOK, &script::FSCK_BODIES_REPAIR],
        "keys" | "used" | "windows" => [&script::FSCK_KEYS_LOOK, &script::FSCK_KEYS_REPAIR],
        "recurring" | "plans" => [&script::FSCK_RECURRING_LOOK, &script::FSCK_RECURRING_REPAIR],
        schedule if schedule.starts_with("schedule:") => {
            [&script::FSCK_SCHEDULE_LOOK, &script::FSCK_SCHEDULE_REPAIR]
        }
        _ => [&script::FSCK_STRAYS_LOOK, &script::FSCK_STRAYS_REPAIR],
    }
}

fn call(
    session: &Session,
    ahead: &LaneAhead,
    page: &Page,
    all_names: &[String],
    repair: bool,
) -> Cmd {
    let lane = &ahead.lane;
    let mut keys = session.keys.of_script(lane, 18);
    keys.push(session.keys.aside(lane));
    let [look, mend] = scripts_for(&page.structure);
    let script = if repair { mend } else { look };
    let names = if page.structure == "bodies" { all_names } else { &page.names };
    session
        .call(script, &keys)
        .arg(&page.structure)
        .arg(&page.cursor)
        .arg(COUNT)
        .arg(u8::from(repair))
        .arg(ahead.shards)
        .arg(lane.shard)
        .arg(TaskId::AHEAD.as_secs())
        .arg(names)
        .take()
}

fn read(page: Page, answer: Value, ahead: &LaneAhead, checked: &mut Checked) -> Result<Seen> {
    let lane = &ahead.lane;
    type Answer = (String, u64, String, Vec<Value>, Vec<Vec<u8>>, String);
    let (cursor, tasks, highest, findings, names, beyond): Answer =
        FromRedisValue::from_redis_value(answer).map_err(corrupt)?;
    checked.tasks += tasks;
    for triple in findings.chunks_exact(3) {
        checked.findings.push(read_finding(triple, lane)?);
    }
    let names: Vec<String> =
        names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    if page.structure == "recurring" && ahead.shards > 0 {
        checked.findings.extend(misplaced(&names, ahead));
    }
    let id = |text: String| {
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(corrupt) }
    };
    Ok(Seen {
        rest: if cursor == "0" { None } else { Some(Page { cursor, ..page }) },
        highest: id(highest)?,
        beyond: id(beyond)?,
        names,
    })
}

/// The recurring schedules whose names lead to other lanes.
fn misplaced(names: &[String], ahead: &LaneAhead) -> impl Iterator<Item = Finding> {
    let LaneAhead { lane, shards, .. } = ahead;
    let leads_elsewhere = |name: &&String| {
        let name: Option<ScheduleName> = name.parse().ok();
        name.is_none_or(|name| name.lane_in(&lane.topic, *shards) != *lane)
    };
    names.iter().filter(leads_elsewhere).map(|name| Finding {
        flaw: Flaw::ScheduleMisplaced,
        lane: Some(lane.clone()),
        subject: name.clone(),
        repaired: false,
    })
}

fn read_finding(triple: &[Value], lane: &Lane) -> Result<Finding> {
    let text = |value: &Value| Vec::<u8>::from_redis_value(value.clone()).map_err(corrupt);
    Ok(Finding {
        flaw: Flaw::from_name(&String::from_utf8_lossy(&text(&triple[0])?))?,
        lane: Some(lane.clone()),
        subject: String::from_utf8_lossy(&text(&triple[1])?).into_owned(),
        repaired: u8::from_redis_value(triple[2].clone()).map_err(corrupt)? == 1,
    })
}

/// Compares the counter with an id that was read before the counter.
async fn check_counter(
    session: &Session,
    lane: &Lane,
    highest: TaskId,
    repair: bool,
    checked: &mut Checked,
) -> Result<()> {
    if counter::last(session).await?.is_none_or(|last| last >= highest.0) {
        return Ok(());
    }
    if repair {
        counter::raise(session, highest.0).await?;
    }
    checked.findings.push(Finding {
        flaw: Flaw::BehindIds,
        lane: Some(lane.clone()),
        subject: highest.to_string(),
        repaired: repair,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_name_flaws_that_there_are() {
        let scripts = script::sent().into_iter().filter(|(name, _)| name.starts_with("fsck_"));
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
