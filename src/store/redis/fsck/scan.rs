//! The first step of a check: finds the lanes, and compares the registry and the id counter with
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, cmd};
use serde_json::Map;

use crate::model::task::{Lane, Topic, TopicPolicy};
use crate::store::redis::keys::Named;
use crate::store::redis::registry::entry::{self, read_entry, scan, shards_of};
use crate::store::redis::registry::topic::{Pauses, with_schedules};
use crate::store::redis::script;
use crate::store::redis::session::Session;
use crate::store::{Error, Finding, Flaw, Result, TopicEntry};

/// How long a topic may be missing in the registry while a task is being added.
const PATIENCE: Duration = Duration::from_millis(500);

/// The keys that one SCAN call examines.
const KEYS_A_STEP: usize = 500;

/// A lane to be checked.
#[derive(Debug)]
pub(crate) struct LaneAhead {
    pub(crate) lane: Lane,
    /// The number of lanes of its topic; 0 if unknown.
    pub(crate) shards: u16,
    /// The names of its schedules, as its keys show them.
    pub(crate) schedules: BTreeSet<String>,
}

/// What the keys show of a topic.
#[derive(Debug, Default)]
struct Seen {
    lanes: BTreeMap<u16, BTreeSet<String>>,
    /// The lanes that hold tasks or recurring schedules.
    with_bodies: BTreeSet<u16>,
    has_schedules: bool,
}

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(error.to_string())
}

/// A finding that is not about a single lane.
fn finding(flaw: Flaw, subject: impl Into<String>, repaired: bool) -> Finding {
    Finding { flaw, lane: None, subject: subject.into(), repaired }
}

/// Checks what is not part of a lane. Returns the lanes and the findings.
pub(crate) async fn survey(
    session: &Session,
    repair: bool,
) -> Result<(Vec<LaneAhead>, Vec<Finding>)> {
    let mut findings = Vec::new();
    let seen = read_keys(session, &mut findings).await?;
    let mut entries = read_entries(session).await?;
    let is_registered = |(topic, seen): (&Topic, &Seen)| {
        seen.with_bodies.is_empty() || entries.contains_key(topic.as_str().as_bytes())
    };
    if !seen.iter().all(is_registered) {
        // An add into an empty lane may be about to register its topic; its caller has no answer
        // yet.
        tokio::time::sleep(PATIENCE).await;
        entries = read_entries(session).await?;
    }

    let mut shards: HashMap<Topic, u16> = HashMap::new();
    for (name, value) in &entries {
        let (name, text) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        if let Ok(entry) = read_entry(&name, &text) {
            shards.insert(entry.topic, entry.shards);
            continue;
        }
        let lanes = name.parse::<Topic>().ok().map(|topic| (seen.get(&topic), topic));
        let repaired = match lanes {
            Some((lanes, topic)) if repair => {
                let entry = TopicEntry { shards: remembered(session, &topic, lanes).await?, topic };
                let is_written = entry::rewrite(session, &entry, value, Map::new()).await?;
                shards.insert(entry.topic, entry.shards);
                is_written
            }
            _ => false,
        };
        findings.push(finding(Flaw::UnreadableTopic, name, repaired));
    }
    for (topic, lanes) in &seen {
        let is_known = entries.contains_key(topic.as_str().as_bytes());
        if !is_known && !lanes.with_bodies.is_empty() {
            if repair {
                let entry = TopicEntry {
                    topic: topic.clone(),
                    shards: remembered(session, topic, Some(lanes)).await?,
                };
                shards.insert(topic.clone(), session.create(entry, None).await?.shards);
            }
            findings.push(finding(Flaw::UnregisteredTopic, topic.as_str(), repair));
        }
        if let Some(registered) = shards.get(topic).copied() {
            let outside: Vec<u16> = lanes.with_bodies.range(registered..).copied().collect();
            if outside.is_empty() {
                continue;
            }
            let mut repaired = false;
            if repair
                && let Some(wanted) = agreed(session, topic, lanes).await?
                && let Some(value) = entries.get(topic.as_str().as_bytes())
            {
                let fields = serde_json::from_slice(value).unwrap_or_default();
                let entry = TopicEntry { topic: topic.clone(), shards: wanted };
                repaired = entry::rewrite(session, &entry, value, fields).await?;
                shards.insert(topic.clone(), wanted);
            }
            for shard in outside {
                let lane = Some(Lane { topic: topic.clone(), shard });
                findings.push(Finding {
                    lane,
                    ..finding(Flaw::LaneOutsideTopic, topic.as_str(), repaired)
                });
            }
        }
    }
    findings.extend(check_marks(session, &seen, repair).await?);
    findings.extend(super::check_counter(session, None, repair).await?);
    findings.extend(check_policies_and_pauses(session).await?);
    findings.extend(check_created(session, repair).await?);
    let ahead = |(topic, seen): (Topic, Seen)| {
        let shards = shards.get(&topic).copied().unwrap_or(0);
        let of = move |(shard, schedules)| LaneAhead {
            lane: Lane { topic: topic.clone(), shard },
            shards,
            schedules,
        };
        seen.lanes.into_iter().map(of)
    };
    Ok((seen.into_iter().flat_map(ahead).collect(), findings))
}

async fn read_entries(session: &Session) -> Result<HashMap<Vec<u8>, Vec<u8>>> {
    let read = cmd("HGETALL").arg(session.keys.topics()).take();
    FromRedisValue::from_redis_value(session.working.run_one(read).await?).map_err(corrupt)
}

async fn read_keys(
    session: &Session,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<Topic, Seen>> {
    let mut topics: BTreeMap<Topic, Seen> = BTreeMap::new();
    let pattern = session.keys.any_of_lanes();
    for node in session.servers.map().nodes() {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let (next, keys) = scan(node, from, &pattern, KEYS_A_STEP).await?;
            keys.into_iter().for_each(|key| see(session, key, &mut topics, findings));
            cursor = next;
        }
    }
    Ok(topics)
}

fn see(
    session: &Session,
    key: String,
    topics: &mut BTreeMap<Topic, Seen>,
    findings: &mut Vec<Finding>,
) {
    let mut has_schedules = false;
    let (lane, schedule, has_bodies) = match session.keys.read(&key) {
        Named::Bodies(lane) => (lane, None, true),
        Named::Recurring(lane) => {
            has_schedules = true;
            (lane, None, true)
        }
        Named::Schedule(lane, name) => (lane, Some(name), false),
        Named::OfLane(lane) => (lane, None, false),
        Named::Stray => {
            findings.push(finding(Flaw::StrayKey, key, false));
            return;
        }
        Named::Foreign => return,
    };
    let seen = topics.entry(lane.topic).or_default();
    seen.lanes.entry(lane.shard).or_default().extend(schedule);
    seen.has_schedules |= has_schedules;
    if has_bodies {
        seen.with_bodies.insert(lane.shard);
    }
}

/// Finds topics with recurring schedules that the registry does not note.
async fn check_marks(
    session: &Session,
    seen: &BTreeMap<Topic, Seen>,
    repair: bool,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if !seen.values().any(|seen| seen.has_schedules) {
        return Ok(findings);
    }
    let noted = with_schedules(session).await?;
    for (topic, _) in seen.iter().filter(|(_, seen)| seen.has_schedules) {
        if noted.contains(topic.as_str()) {
            continue;
        }
        if repair {
            session.mark_schedules(topic).await?;
        }
        findings.push(finding(Flaw::SchedulesUnmarked, topic.as_str(), repair));
    }
    Ok(findings)
}

/// The number of lanes that a topic's lanes remember; 1 if it has none.
async fn remembered(session: &Session, topic: &Topic, seen: Option<&Seen>) -> Result<u16> {
    shards_of(session, topic, seen.into_iter().flat_map(|seen| seen.with_bodies.iter().copied()))
        .await
}

/// The number of lanes that all of a topic's lanes remember. `None` if one of them remembers none
/// or another: with a wrong number, ids would lead to other lanes than where their tasks are. That
/// would be worse than a lane that is not worked.
async fn agreed(session: &Session, topic: &Topic, seen: &Seen) -> Result<Option<u16>> {
    let mut agreed = None;
    for shard in seen.with_bodies.iter().copied() {
        let lane = Lane { topic: topic.clone(), shard };
        match entry::remembered_by(session, &lane).await? {
            Some(shards) if shards > shard && agreed.is_none_or(|agreed| agreed == shards) => {
                agreed = Some(shards)
            }
            _ => return Ok(None),
        }
    }
    Ok(agreed.filter(|shards| (1..=TopicEntry::MAX_SHARDS).contains(shards)))
}

/// Finds policies and pauses that cannot be read. There is no repair: their content is unknown.
async fn check_policies_and_pauses(session: &Session) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    type Reads = fn(&str) -> bool;
    let policy: Reads = |text| serde_json::from_str::<TopicPolicy>(text).is_ok();
    let pauses: Reads = |text| Pauses::read(text).is_some();
    let tables = [
        (session.keys.policies(), policy, Flaw::UnreadablePolicy),
        (session.keys.pauses(), pauses, Flaw::UnreadablePause),
    ];
    for (key, reads, flaw) in tables {
        let answer = session.working.run_one(cmd("HGETALL").arg(key).take()).await?;
        let entries = HashMap::<Vec<u8>, Vec<u8>>::from_redis_value(answer).map_err(corrupt)?;
        let bad = entries.iter().filter(|(_, value)| !reads(&String::from_utf8_lossy(value)));
        findings.extend(bad.map(|(topic, _)| finding(flaw, String::from_utf8_lossy(topic), false)));
    }
    Ok(findings)
}

/// Finds topics that count among those of a token that has not created them.
async fn check_created(session: &Session, repair: bool) -> Result<Vec<Finding>> {
    let script = if repair { &script::FSCK_CREATED_REPAIR } else { &script::FSCK_CREATED_LOOK };
    let call = session.call(script, &session.keys.of_registry()).arg(u8::from(repair)).take();
    let found = Vec::<Vec<u8>>::from_redis_value(session.working.run_one(call).await?);
    let found = found.map_err(corrupt)?.into_iter();
    Ok(found
        .map(|member| finding(Flaw::CreatorWrong, String::from_utf8_lossy(&member), repair))
        .collect())
}
