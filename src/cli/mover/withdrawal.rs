//! What ends at the old service while it is on its way ends at the new one, too.

use std::collections::HashSet;

use delayd_wire::{ErrorCode, GetRequest, Records, TaskId, TaskState};
use serde::de::IgnoredAny;

use super::Mover;
use crate::cli::adopting::Adopted;
use crate::cli::exported::Exported;
use crate::cli::out;

impl Mover {
    /// Looks what became of tasks that the new service keeps and that could not be ended here:
    /// those that were cancelled, were pushed back by
    /// their key, succeeded or expired meanwhile must not fire at the new service.
    pub(super) async fn follow(&mut self, topic: &str, ids: Vec<TaskId>) -> anyhow::Result<()> {
        let (mut ended, mut seen) = (Vec::new(), HashSet::new());
        let mut rest = ids.clone();
        while !rest.is_empty() {
            let answer: Records<Exported> =
                self.old.call("/delay/task/records", &self.lending(topic, &rest)).await?;
            rest = answer.rest;
            for task in answer.records {
                seen.insert(task.id());
                match task.record.state {
                    // The lease had run out, and it is lent again: the next pass moves it.
                    TaskState::Scheduled if !task.record.cancelling => {}
                    // It may be replayed here, and is to be called there.
                    TaskState::Dead => {}
                    _ => ended.push(task),
                }
            }
        }
        self.withdraw(topic, ended).await?;
        for id in ids.into_iter().filter(|id| !seen.contains(id)) {
            let body = GetRequest { topic: Some(topic), task_id: Some(id) };
            if self.old.find::<IgnoredAny>("/delay/task/get", &body).await?.is_some() {
                self.held.entry(topic.to_owned()).or_default().push(id);
            }
        }
        Ok(())
    }

    /// Ends tasks at the new service that have ended here, or are about to: a pending cancel is
    /// carried out after that.
    pub(super) async fn withdraw(
        &mut self,
        topic: &str,
        records: Vec<Exported>,
    ) -> anyhow::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        // A lent task whose cancel is pending is not to be delivered.
        let cancelling = records.iter().filter(|task| task.record.cancelling).map(Exported::id);
        let cancelling: Vec<TaskId> = cancelling.collect();
        let ids: Vec<TaskId> = records.iter().map(Exported::id).collect();
        let adopted = self.adopt(records, Some(topic)).await?;
        for (id, adopted) in ids.into_iter().zip(adopted) {
            match adopted {
                Ok(Adopted::Held) => self.say(&format!(
                    "task {id} of {topic} ended here, and is in someone's hands at the new service: it is not tried again there"
                )),
                Ok(_) => self.tallies.of(topic).withdrawn += 1,
                // With the same store at both ends, its end is its end.
                Err(why) if why.code == ErrorCode::OwnTask => {}
                Err(why) => self.say(&format!(
                    "task {id} of {topic} ended here, and what has its id at the new service goes on: {}",
                    out::plain(&why.sentence, 300)
                )),
            }
        }
        self.end(topic, &cancelling, true).await?;
        Ok(())
    }
}
