//! Searches for lanes that the registry lost or contradicts.
//!
//! A search reads the names of all keys, so it is slow on purpose: it takes two steps a second, of
//! one round trip each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::{entry, reconcile};
use crate::model::task::{Lane, Topic};
use crate::store::redis::session::Session;
use crate::store::redis::transport::node::Node;
use crate::store::{Result, TopicEntry};

/// The keys that one step examines. The server needs about a millisecond for them.
const KEYS_A_STEP: usize = 2_000;
/// The lanes that one step compares with the registry.
const LANES_A_STEP: usize = 2_000;
/// The time between two steps.
const PAUSE: Duration = Duration::from_millis(500);

/// Registers the topics of lanes that are not registered, and reconciles those that the registry
/// contradicts. Returns the entries that it wrote. An unreachable server is skipped: the next
/// search finds its lanes.
pub(crate) async fn recover(session: &Session) -> Result<Vec<TopicEntry>> {
    let known: HashMap<Topic, TopicEntry> = entry::entries(session)
        .await?
        .into_iter()
        .map(|entry| (entry.topic.clone(), entry))
        .collect();
    let mut found: BTreeMap<Topic, BTreeSet<u16>> = BTreeMap::new();
    for node in session.servers.map().nodes() {
        if let Err(error) = look_for_lanes(session, node, &mut found).await {
            tracing::debug!(server = %node.name, %error, "Could not search a server for lanes");
        }
    }
    let mut entries = Vec::new();
    let mut registered: Vec<(Lane, u16)> = Vec::new();
    for (topic, lanes) in found {
        if let Some(entry) = known.get(&topic) {
            let lane = |shard| (Lane { topic: topic.clone(), shard }, entry.shards);
            registered.extend(lanes.into_iter().map(lane));
            continue;
        }
        let shards = entry::shards_of(session, &topic, lanes.into_iter()).await?;
        tracing::warn!(
            %topic,
            "Topic {topic} holds tasks but was not registered; it is registered again"
        );
        entries.push(entry::assert(session, &TopicEntry { topic, shards }).await?);
    }
    for (step, lanes) in registered.chunks(LANES_A_STEP).enumerate() {
        if step > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let lanes = lanes.iter().cloned().collect();
        for topic in reconcile::contradicted(session, &lanes).await? {
            entries.extend(reconcile::reconcile(session, &topic).await?);
        }
    }
    Ok(entries)
}

async fn look_for_lanes(
    session: &Session,
    node: &Node,
    found: &mut BTreeMap<Topic, BTreeSet<u16>>,
) -> Result<()> {
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        if from > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let (next, keys) = entry::scan(node, from, &session.keys.any_bodies(), KEYS_A_STEP).await?;
        for lane in keys.iter().filter_map(|key| session.keys.lane_of(key)) {
            found.entry(lane.topic).or_default().insert(lane.shard);
        }
        cursor = next;
    }
    Ok(())
}
