//! The store's recurring schedules, and the sabotages of their plans.

use delayd::model::task::{Lane, ScheduleName, State, TaskId};
use delayd::store::{
    Error, NewSchedule, Pause, Plan, Planned, Result, SKIPPED, Schedule, ScheduleSet, TopicEntry,
};

use super::{Kept, World};
use crate::history::{Change, What};
use crate::sabotage::Sabotage;
use crate::schedules_model::Recurring;

/// What a failover may forget: the last plan of a schedule.
#[derive(Debug)]
pub(super) struct LastPlan {
    /// The schedule before the plan.
    before: Recurring,
    cursor: Option<String>,
    task: TaskId,
}

impl World {
    pub(crate) fn set_schedule(&self, topic: &TopicEntry, new: NewSchedule) -> Result<ScheduleSet> {
        let mut kept = self.kept();
        if kept.model.register(topic.clone()) != *topic {
            return Err(Error::StaleEntry);
        }
        let lane = new.name.lane_in(&topic.topic, topic.shards);
        let answer = kept.model.set_schedule(&lane, new.clone());
        let change = match answer {
            ScheduleSet::Created(_) => Change::Created,
            ScheduleSet::Changed(_) => Change::Changed,
            _ => return Ok(answer),
        };
        self.write(What::ScheduleSet { lane, new: Box::new(new), change });
        Ok(answer)
    }

    pub(crate) fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Option<Schedule> {
        let mut kept = self.kept();
        let was_paused = kept.model.schedule(lane, name)?.paused.is_some();
        let untouched = kept.model.tasks.clone();
        let schedule = kept.model.pause_schedule(lane, name, pause);
        if pause.is_some() && self.is_sabotaged(Sabotage::PauseLeavesOccurrence) {
            kept.model.tasks = untouched;
        }
        if was_paused != pause.is_some() {
            let (lane, name, is_paused) = (lane.clone(), name.clone(), pause.is_some());
            self.write(What::SchedulePaused { lane, name, is_paused });
        }
        schedule
    }

    pub(crate) fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> bool {
        let was_there = self.kept().model.delete_schedule(lane, name);
        if was_there {
            self.write(What::ScheduleDeleted { lane: lane.clone(), name: name.clone() });
        }
        was_there
    }

    /// Deletes all schedules.
    pub(crate) fn delete_schedules(&self) {
        let all: Vec<_> = self.look(|model| model.schedules.keys().cloned().collect());
        for (lane, name) in all {
            self.delete_schedule(&lane, &name);
        }
    }

    pub(crate) fn plan_occurrence(&self, asked: &Plan) -> Planned {
        let mut kept = self.kept();
        let lane = asked.name.lane_in(&asked.topic.topic, asked.topic.shards);
        let key = (lane.clone(), asked.name.clone());
        let mut plan = asked.clone();
        if let Some(stored) = kept.model.schedule(&lane, &asked.name) {
            if self.is_sabotaged(Sabotage::RevisionNotCompared) {
                plan.revision = stored.revision;
            }
            if self.is_sabotaged(Sabotage::CursorNotCompared) {
                plan.cursor = stored.cursor;
            }
        }
        if self.is_sabotaged(Sabotage::MissedNotCounted) {
            plan.missed = plan.missed.map(|(_, until)| (0, until));
            let next = plan.next.as_mut();
            let occurrence = next.and_then(|next| next.task.options.schedule.as_mut());
            occurrence.into_iter().for_each(|occurrence| occurrence.missed = 0);
        }
        let before = kept.model.schedules.get(&key).cloned();
        let planned = kept.model.plan(&plan);
        if let (Planned::Added { task, .. }, Some(before)) = (planned, before) {
            let cursor = kept.model.schedule(&lane, &plan.name).and_then(|stored| stored.cursor);
            if self.is_sabotaged(Sabotage::CursorAfterAdd)
                && self.dice.throw("sabotage").per_mille(300)
            {
                // The planner dies between the two steps.
                kept.model.schedules.insert(key.clone(), before.clone());
            }
            kept.last_plans.insert(key, LastPlan { before, cursor, task });
            kept.occurrences.insert(task, lane.clone());
        }
        if planned != Planned::Stale {
            self.write(What::Planned { lane, plan: Box::new(asked.clone()), answer: planned });
        } else {
            self.write(What::PlanStale);
        }
        planned
    }

    /// A failover: each schedule's last plan never happened, nor did anything that came of it.
    pub(crate) fn forget_plans(&self) {
        let mut kept = self.kept();
        for (key, LastPlan { before, cursor, task }) in std::mem::take(&mut kept.last_plans) {
            let stored = kept.model.schedule(&key.0, &key.1);
            let is_last = stored
                .is_some_and(|stored| stored.cursor == cursor && stored.recent[0].task == task);
            if is_last {
                kept.model.schedules.insert(key, before);
                kept.model.tasks.remove(&task);
                self.write(What::PlanForgotten { id: task });
            }
        }
    }
}

impl Kept {
    /// The occurrences of a lane that a claim has skipped since the last claim.
    pub(super) fn take_skipped(&mut self, lane: &Lane) -> Vec<TaskId> {
        let is_skipped = |id: &TaskId, of: &mut Lane| {
            let task = self.model.get(of, *id).filter(|_| of == lane);
            task.is_some_and(|task| task.state == State::Expired && task.last_outcome == SKIPPED)
        };
        self.occurrences.extract_if(.., is_skipped).map(|(id, _)| id).collect()
    }
}
