//! Moves recurring schedules.
//!
//! ```text
//! old: records, hold ─▶ new: adopt ─▶ old: moved
//!      (paused)             (kept)         (deleted)
//! ```
//!
//! # Invariants
//!
//! - A schedule fires at one of the two services. While this command holds it, it fires at none;
//!   the new service makes up for those moments as after an outage.
//! - If it is not known whether the new service has a schedule, it stays paused at the old one. The
//!   next run goes on with it.

use std::collections::HashSet;

use delayd_wire::{
    AtMost, MovedSchedule, ScheduleMovedRequest, ScheduleRecordsRequest, SchedulesEnded, Topic,
};

use super::Mover;
use super::import_batch::adopt_schedules;
use crate::cli::client::RefusedByService;
use crate::cli::exported::{ExportedSchedule, SchedulePage, schedules_of};
use crate::cli::output;

impl Mover {
    /// Moves the recurring schedules of a topic.
    pub(super) async fn schedules(&mut self, topic: &Topic) -> anyhow::Result<()> {
        let mut cursor = None;
        loop {
            let body = schedules_of(topic, cursor);
            // A service of an earlier version has no schedules.
            let found = self.old.find("/delay/schedule/records", &body).await?;
            let Some(SchedulePage { records, cursor: next }) = found else { return Ok(()) };
            let is_kept = |schedule: &ExportedSchedule| {
                self.kept_schedules.contains(&(topic.to_string(), schedule.schedule.clone()))
            };
            let (kept, to_move): (Vec<_>, Vec<_>) = records.into_iter().partition(is_kept);
            for id in kept.into_iter().filter_map(|schedule| schedule.waiting) {
                // It fires at the old service, as its schedule does.
                self.refused.entry(id).or_insert(None);
                self.listed.insert(id);
            }
            if !to_move.is_empty() {
                self.hand_over_schedules(topic, to_move).await?;
            }
            cursor = next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    async fn hand_over_schedules(
        &mut self,
        topic: &Topic,
        listed: Vec<ExportedSchedule>,
    ) -> anyhow::Result<()> {
        let names: Vec<String> = listed.into_iter().map(|schedule| schedule.schedule).collect();
        let (limit, cursor, hold) = (None, None, Some(AtMost(names)));
        let hold = ScheduleRecordsRequest { topic: topic.clone(), hold, limit, cursor };
        let SchedulePage { records: held, .. } =
            self.old.call("/delay/schedule/records", &hold).await?;
        let adopted = match adopt_schedules(&self.new, topic, &held).await {
            Ok(adopted) => adopted,
            Err(error) => {
                // Another error leaves open whether the new service has them.
                let is_refused = |refused: &RefusedByService| !refused.code.passes();
                if error.downcast_ref().is_some_and(is_refused) {
                    self.end_schedules(topic, &held.iter().collect::<Vec<_>>(), true).await?;
                }
                return Err(error.context("the new service does not take recurring schedules"));
            }
        };
        let (mut kept, mut back) = (Vec::new(), Vec::new());
        for (schedule, adopted) in held.iter().zip(adopted) {
            match adopted {
                Ok(_) => kept.push(schedule),
                Err(why) => {
                    let name = &schedule.schedule;
                    let why = output::plain(&why.sentence, 300);
                    self.say(&format!("schedule {name} of {topic} stays: {why}"));
                    self.kept_schedules.insert((topic.to_string(), name.clone()));
                    back.push(schedule);
                }
            }
        }
        self.end_schedules(topic, &back, true).await?;
        // One that was changed here meanwhile is moved again by the next pass.
        let stale = self.end_schedules(topic, &kept, false).await?;
        let moved = (kept.len() - stale.len()) as u64;
        self.tallies.of(topic.as_str()).schedules += moved;
        self.signs += kept.len() as u64;
        Ok(())
    }

    /// Reports schedules as moved, or lets them go on here if `back`. Returns those that were
    /// changed since.
    async fn end_schedules(
        &self,
        topic: &Topic,
        schedules: &[&ExportedSchedule],
        back: bool,
    ) -> anyhow::Result<HashSet<String>> {
        if schedules.is_empty() {
            return Ok(HashSet::new());
        }
        let moved = |schedule: &&ExportedSchedule| MovedSchedule {
            schedule: schedule.schedule.clone(),
            revision: schedule.revision.clone(),
        };
        let body = ScheduleMovedRequest {
            topic: topic.clone(),
            schedules: AtMost(schedules.iter().map(moved).collect()),
            back: back.then_some(true),
        };
        let ended: SchedulesEnded = self.old.call("/delay/schedule/moved", &body).await?;
        Ok(ended.stale.into_iter().collect())
    }
}
