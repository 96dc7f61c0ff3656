//! Ends tasks at the new service that ended at the old one while they were moved.

use std::collections::HashSet;

use delayd_wire::{ErrorCode, GetRequest, Records, TaskId, TaskState, Topic};
use serde::de::IgnoredAny;

use super::Mover;
use super::import_batch::ImportedRecord;
use crate::cli::exported::Exported;
use crate::cli::output;

impl Mover {
    /// Checks tasks that the new service has stored, but that could not be ended here. If they were
    /// cancelled, pushed back by their key, succeeded or expired meanwhile, they must not fire at
    /// the new service.
    pub(super) async fn follow(&mut self, topic: &Topic, ids: Vec<TaskId>) -> anyhow::Result<()> {
        let (mut ended, mut seen) = (Vec::new(), HashSet::new());
        let mut rest = ids.clone();
        while !rest.is_empty() {
            let answer: Records =
                self.old.call("/delay/task/records", &self.lending(topic, &rest)).await?;
            rest = answer.rest;
            for task in Exported::all(answer.records) {
                seen.insert(task.id());
                match task.record.state {
                    // The lease ended, and the task is leased again: the next pass moves it.
                    TaskState::Scheduled if !task.record.cancelling => {}
                    // A dead task may be replayed here, and is to be called there.
                    TaskState::Dead => {}
                    _ => ended.push(task),
                }
            }
        }
        self.withdraw(topic, ended).await?;
        for id in ids.into_iter().filter(|id| !seen.contains(id)) {
            let (key, idempotency_key) = (None, None);
            let task_id = Some(id);
            let body = GetRequest { topic: topic.clone(), task_id, key, idempotency_key };
            if self.old.find::<IgnoredAny>("/delay/task/get", &body).await?.is_some() {
                self.held.entry(topic.clone()).or_default().push(id);
            }
        }
        Ok(())
    }

    /// Ends tasks at the new service that have ended here, or are about to: a pending cancel is
    /// carried out after this.
    pub(super) async fn withdraw(
        &mut self,
        topic: &Topic,
        records: Vec<Exported>,
    ) -> anyhow::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        // A leased task with a pending cancel must not be delivered.
        let cancelling = records.iter().filter(|task| task.record.cancelling).map(Exported::id);
        let cancelling: Vec<TaskId> = cancelling.collect();
        let ids: Vec<TaskId> = records.iter().map(Exported::id).collect();
        let adopted = self.adopt(records, Some(topic)).await?;
        for (id, adopted) in ids.into_iter().zip(adopted) {
            match adopted {
                Ok(ImportedRecord::Held) => self.say(&format!(
                    "task {id} of {topic} ended here, but is leased at the new service: \
                     it is not retried there"
                )),
                Ok(_) => self.tallies.of(topic.as_str()).withdrawn += 1,
                // If both have the same store, the task has ended there as well.
                Err(why) if why.code == ErrorCode::OwnTask => {}
                Err(why) => self.say(&format!(
                    "task {id} of {topic} ended here, but not at the new service: {}",
                    output::plain(&why.sentence, 300)
                )),
            }
        }
        self.end(topic, &cancelling, true).await?;
        Ok(())
    }
}
