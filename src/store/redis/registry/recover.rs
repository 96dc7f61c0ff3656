//! Searches for lanes that the registry lost or contradicts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{entry, reconcile};
use crate::model::task::Topic;
use crate::store::redis::session::Session;
use crate::store::redis::transport::node::Node;
use crate::store::{Result, TopicEntry};

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
    for (topic, lanes) in found {
        match known.get(&topic) {
            None => {
                let shards = entry::shards_of(session, &topic, lanes.into_iter()).await?;
                tracing::warn!(
                    %topic,
                    "Topic {topic} holds tasks but was not registered; it is registered again"
                );
                entries.push(entry::assert(session, &TopicEntry { topic, shards }).await?);
            }
            Some(entry) => {
                if reconcile::is_needed(session, entry, lanes.into_iter()).await? {
                    entries.extend(reconcile::reconcile(session, &topic).await?);
                }
            }
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
        let (next, keys) = entry::scan(node, from, &session.keys.any_bodies()).await?;
        for lane in keys.iter().filter_map(|key| session.keys.lane_of(key)) {
            found.entry(lane.topic).or_default().insert(lane.shard);
        }
        cursor = next;
    }
    Ok(())
}
