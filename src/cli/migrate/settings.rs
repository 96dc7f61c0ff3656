//! Sets topics at the new service.

use anyhow::Context;
use delayd_wire::Topic;
use delayd_wire::TopicShown;

use super::{Mover, of_topic};
use crate::cli::topic_settings::TopicSettings;

impl Mover {
    /// Sets the topic at the new service before any of its tasks is moved.
    pub(super) async fn settings(&mut self, topic: &Topic) -> anyhow::Result<()> {
        if self.tallies.knows(topic.as_str()) {
            return Ok(());
        }
        let shown: TopicShown = self.old.call("/delay/topic/get", &of_topic(topic)).await?;
        let settings = TopicSettings::from(shown);
        let there = settings
            .create_at(&self.new)
            .await
            .with_context(|| format!("topic {topic} at the new service"))?;
        for (is_other, what) in [
            (
                there.shards != settings.shards,
                "another number of shards: tasks with a key or on_dead will be refused",
            ),
            (
                there.paused != settings.paused,
                "another pause: tasks paused here may be delivered there, or vice versa",
            ),
        ] {
            if is_other {
                eprintln!("delayd: topic {topic} exists at the new service, and has {what}");
            }
        }
        self.tallies.of(topic.as_str());
        Ok(())
    }
}
