//! The first step of a check: finds the lanes, and compares the registry and the id counter with
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, cmd};
use serde_json::Map;

use crate::model::task::{Lane, Topic, TopicPolicy};
use crate::store::redis::answer::corrupt;
use crate::store::redis::ids::counter;
use crate::store::redis::keys::NamedKey;
use crate::store::redis::registry::entry::{self, read_entry, scan, shards_of};
use crate::store::redis::registry::topic::{Pauses, with_schedules};
use crate::store::redis::script;
use crate::store::redis::session::Session;
use crate::store::{Finding, Flaw, Result, TopicEntry};

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
struct ScannedEntry {
    lanes: BTreeMap<u16, BTreeSet<String>>,
    /// The lanes that hold tasks or recurring schedules.
    with_bodies: BTreeSet<u16>,
    has_schedules: bool,
}

pub(super) fn lossy(name: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(name.as_ref()).into_owned()
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
    let mut entries = read_table(session, session.keys.topics()).await?;
    let is_lost = |(topic, seen): (&Topic, &ScannedEntry), entries: &RegistryTable| {
        !seen.with_bodies.is_empty() && !entries.contains_key(topic.as_str())
    };
    if seen.iter().any(|seen| is_lost(seen, &entries)) {
        // An add into an empty lane may be about to register its topic; its caller has no answer
        // yet.
        tokio::time::sleep(PATIENCE).await;
        entries = read_table(session, session.keys.topics()).await?;
    }

    let mut shards: HashMap<Topic, u16> = HashMap::new();
    for (name, value) in &entries {
        if let Ok(entry) = read_entry(name, &lossy(value)) {
            shards.insert(entry.topic, entry.shards);
            continue;
        }
        let mut repaired = false;
        if repair && let Ok(topic) = name.parse::<Topic>() {
            let entry = remembered(session, &topic, seen.get(&topic)).await?;
            repaired = entry::rewrite(session, &entry, value, Map::new()).await?;
            shards.insert(entry.topic, entry.shards);
        }
        findings.push(finding(Flaw::UnreadableTopic, name, repaired));
    }
    let noted = with_schedules(session).await?;
    for (topic, lanes) in &seen {
        if is_lost((topic, lanes), &entries) {
            if repair {
                let entry = remembered(session, topic, Some(lanes)).await?;
                shards.insert(topic.clone(), session.create(entry, None).await?.shards);
            }
            findings.push(finding(Flaw::UnregisteredTopic, topic.as_str(), repair));
        }
        let registered = shards.get(topic).copied().unwrap_or(u16::MAX);
        let outside: Vec<u16> = lanes.with_bodies.range(registered..).copied().collect();
        let mut repaired = false;
        if repair
            && !outside.is_empty()
            && let Some(right) = agreed(session, topic, lanes).await?
            && let Some(value) = entries.get(topic.as_str())
        {
            let fields = serde_json::from_slice(value).unwrap_or_default();
            repaired = entry::rewrite(session, &right, value, fields).await?;
            shards.insert(topic.clone(), right.shards);
        }
        for shard in outside {
            let lane = Some(Lane { topic: topic.clone(), shard });
            let found = finding(Flaw::LaneOutsideTopic, topic.as_str(), repaired);
            findings.push(Finding { lane, ..found });
        }
        if lanes.has_schedules && !noted.contains(topic.as_str()) {
            if repair {
                session.mark_schedules(topic).await?;
            }
            findings.push(finding(Flaw::SchedulesUnmarked, topic.as_str(), repair));
        }
    }
    findings.extend(check_counter(session, None, repair).await?);
    findings.extend(check_policies_and_pauses(session).await?);
    findings.extend(check_created(session, repair).await?);
    let ahead = |(topic, seen): (Topic, ScannedEntry)| {
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

/// A table of the registry by topic. Each value is as it was stored.
type RegistryTable = HashMap<String, Vec<u8>>;

async fn read_table(session: &Session, key: String) -> Result<RegistryTable> {
    let answer = session.working.run_one(cmd("HGETALL").arg(key).take()).await?;
    let entries = HashMap::<Vec<u8>, Vec<u8>>::from_redis_value(answer).map_err(corrupt)?;
    Ok(entries.into_iter().map(|(name, value)| (lossy(name), value)).collect())
}

async fn read_keys(
    session: &Session,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<Topic, ScannedEntry>> {
    let mut topics: BTreeMap<Topic, ScannedEntry> = BTreeMap::new();
    let mut see = |key: String| {
        let named = session.keys.read(&key);
        let has_schedules = matches!(named, NamedKey::Recurring(_));
        let has_bodies = has_schedules || matches!(named, NamedKey::Bodies(_));
        let (lane, schedule) = match named {
            NamedKey::Bodies(lane) | NamedKey::Recurring(lane) | NamedKey::OfLane(lane) => {
                (lane, None)
            }
            NamedKey::Schedule(lane, name) => (lane, Some(name)),
            NamedKey::Stray => return findings.push(finding(Flaw::StrayKey, key, false)),
            NamedKey::Foreign => return,
        };
        let seen = topics.entry(lane.topic).or_default();
        seen.lanes.entry(lane.shard).or_default().extend(schedule);
        seen.has_schedules |= has_schedules;
        seen.with_bodies.extend(has_bodies.then_some(lane.shard));
    };
    let pattern = session.keys.any_of_lanes();
    for node in session.servers.map().nodes() {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let (next, keys) = scan(node, from, &pattern, KEYS_A_STEP).await?;
            keys.into_iter().for_each(&mut see);
            cursor = next;
        }
    }
    Ok(topics)
}

/// The entry of a topic, with the number of lanes that its lanes remember; 1 if it has none.
async fn remembered(
    session: &Session,
    topic: &Topic,
    seen: Option<&ScannedEntry>,
) -> Result<TopicEntry> {
    let lanes = seen.into_iter().flat_map(|seen| seen.with_bodies.iter().copied());
    Ok(TopicEntry { topic: topic.clone(), shards: shards_of(session, topic, lanes).await? })
}

/// The entry with the number of lanes that all of a topic's lanes remember. `None` if one of them
/// remembers none or another: with a wrong number, ids would lead to other lanes than where their
/// tasks are. That would be worse than a lane that is not worked.
async fn agreed(
    session: &Session,
    topic: &Topic,
    seen: &ScannedEntry,
) -> Result<Option<TopicEntry>> {
    let mut numbers = BTreeSet::new();
    for shard in seen.with_bodies.iter().copied() {
        let lane = Lane { topic: topic.clone(), shard };
        let remembered = entry::remembered_by(session, &lane).await?;
        numbers.insert(remembered.filter(|shards| *shards > shard));
    }
    let shards = numbers.pop_first().flatten().filter(|_| numbers.is_empty());
    let shards = shards.filter(|shards| *shards <= TopicEntry::MAX_SHARDS);
    Ok(shards.map(|shards| TopicEntry { topic: topic.clone(), shards }))
}

/// Finds policies and pauses that cannot be read. There is no repair: their content is unknown.
async fn check_policies_and_pauses(session: &Session) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (name, text) in read_table(session, session.keys.policies()).await? {
        if serde_json::from_slice::<TopicPolicy>(&text).is_err() {
            findings.push(finding(Flaw::UnreadablePolicy, name, false));
        }
    }
    for (name, text) in read_table(session, session.keys.pauses()).await? {
        if Pauses::read(&lossy(text)).is_none() {
            findings.push(finding(Flaw::UnreadablePause, name, false));
        }
    }
    Ok(findings)
}

/// Finds topics that count among those of a token that has not created them.
async fn check_created(session: &Session, repair: bool) -> Result<Vec<Finding>> {
    let script = if repair { &script::FSCK_CREATED_REPAIR } else { &script::FSCK_CREATED_LOOK };
    let call = session.call(script, &session.keys.of_registry()).arg(u8::from(repair)).take();
    let found = Vec::<Vec<u8>>::from_redis_value(session.working.run_one(call).await?);
    let found = found.map_err(corrupt)?.into_iter();
    Ok(found.map(|member| finding(Flaw::CreatorWrong, lossy(member), repair)).collect())
}

/// Compares the counter of ids with an id of a lane that was read before, or only reads it.
pub(super) async fn check_counter(
    session: &Session,
    of: Option<(&Lane, u64)>,
    repair: bool,
) -> Result<Option<Finding>> {
    let highest = of.map_or(0, |(_, id)| id);
    let (flaw, subject) = match counter::last(session).await? {
        Some(last) if last < highest => (Flaw::BehindIds, highest.to_string()),
        None if of.is_none() => (Flaw::UnreadableCounter, session.keys.last_id()),
        _ => return Ok(None),
    };
    if repair {
        counter::raise(session, highest).await?;
    }
    Ok(Some(Finding { flaw, lane: of.map(|(lane, _)| lane.clone()), subject, repaired: repair }))
}
