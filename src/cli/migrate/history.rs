//! Copies dead tasks and the history.

use delayd_wire::{Records, TaskId, TaskState, Topic};

use super::{ENDED, Mover};
use crate::cli::exported::{Exported, records_of};

impl Mover {
    /// Copies dead tasks, and the history if asked for. They also stay at the old service.
    pub(super) async fn ended(&mut self, topic: &Topic) -> anyhow::Result<()> {
        let states = if self.args.history { &ENDED[..] } else { &[] };
        for state in [TaskState::Dead].iter().chain(states).copied() {
            let mut cursor = None;
            loop {
                let page = self.page(&self.old, topic, state, cursor).await?;
                let ids: Vec<TaskId> = page.tasks.iter().map(|task| task.task_id).collect();
                for batch in ids.chunks(self.args.batch.into()) {
                    self.copy(topic, state, batch).await?;
                }
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn copy(
        &mut self,
        topic: &Topic,
        state: TaskState,
        ids: &[TaskId],
    ) -> anyhow::Result<()> {
        let mut rest = ids.to_vec();
        while !rest.is_empty() {
            let answer: Records =
                self.old.call("/delay/task/records", &records_of(topic, &rest)).await?;
            rest = answer.rest;
            let records: Vec<Exported> =
                Exported::all(answer.records).filter(|task| task.record.state == state).collect();
            if records.is_empty() {
                continue;
            }
            let ids: Vec<TaskId> = records.iter().map(Exported::id).collect();
            let adopted = self.adopt(records, None).await?;
            for (id, adopted) in ids.iter().zip(adopted) {
                match adopted {
                    Ok(_) => {
                        let tally = self.tallies.of(topic.as_str());
                        *(if state == TaskState::Dead {
                            &mut tally.dead
                        } else {
                            &mut tally.ended
                        }) += 1;
                    }
                    Err(why) => {
                        self.tell(topic, *id, &why.sentence);
                        self.tallies.of(topic.as_str()).refused += 1;
                    }
                }
            }
            self.pace(ids.len() as u64).await;
        }
        Ok(())
    }
}
