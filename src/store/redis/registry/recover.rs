//! Searches for lanes that the registry lost or contradicts, and for topics that it does not note
//! as having recurring schedules.
//!
//! A search reads the names of all keys, so it is slow on purpose: it takes two steps a second, of
//! one round trip each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::{entry, reconcile, topic};
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

impl Session {
    /// Registers the topics of lanes that are not registered, and reconciles those that the
    /// registry contradicts. Returns the entries that it wrote. An unreachable server is skipped:
    /// the next search finds its lanes.
    pub(crate) async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        let known: HashMap<Topic, TopicEntry> = entry::entries(self)
            .await?
            .into_iter()
            .map(|entry| (entry.topic.clone(), entry))
            .collect();
        let mut found = FoundTopic::default();
        for node in self.servers.map().nodes() {
            if let Err(error) = look_for_lanes(self, node, &mut found).await {
                tracing::debug!(server = %node.name, %error, "Could not search a server for lanes");
            }
        }
        let FoundTopic { lanes: found, with_schedules } = found;
        let mut entries = Vec::new();
        let mut registered: Vec<(Lane, u16)> = Vec::new();
        for (topic, lanes) in found {
            if let Some(entry) = known.get(&topic) {
                let lane = |shard| (Lane { topic: topic.clone(), shard }, entry.shards);
                registered.extend(lanes.into_iter().map(lane));
                continue;
            }
            let shards = entry::shards_of(self, &topic, lanes.into_iter()).await?;
            tracing::warn!(
                %topic,
                "Topic {topic} holds tasks or schedules but was not registered; it is registered \
                 again"
            );
            entries.push(self.create(TopicEntry { topic, shards }, None).await?);
        }
        if !with_schedules.is_empty() {
            let noted = topic::with_schedules(self).await?;
            for topic in with_schedules.iter().filter(|topic| !noted.contains(topic.as_str())) {
                self.mark_schedules(topic).await?;
                tracing::warn!(
                    %topic,
                    "Topic {topic} has recurring schedules that the registry did not note; it \
                     notes them again"
                );
            }
        }
        for (step, lanes) in registered.chunks(LANES_A_STEP).enumerate() {
            if step > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let lanes = lanes.iter().cloned().collect();
            for topic in reconcile::contradicted(self, &lanes).await? {
                entries.extend(reconcile::reconcile(self, &topic).await?);
            }
        }
        Ok(entries)
    }
}

/// What the names of keys show.
#[derive(Default)]
struct FoundTopic {
    lanes: BTreeMap<Topic, BTreeSet<u16>>,
    /// The topics that have recurring schedules.
    with_schedules: BTreeSet<Topic>,
}

async fn look_for_lanes(session: &Session, node: &Node, found: &mut FoundTopic) -> Result<()> {
    let pattern = session.keys.any_contents();
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        if from > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let (next, keys) = entry::scan(node, from, &pattern, KEYS_A_STEP).await?;
        for (lane, has_schedules) in keys.iter().filter_map(|key| session.keys.content_of(key)) {
            if has_schedules {
                found.with_schedules.insert(lane.topic.clone());
            }
            found.lanes.entry(lane.topic).or_default().insert(lane.shard);
        }
        cursor = next;
    }
    Ok(())
}
