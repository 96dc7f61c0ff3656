//! The requests for recurring schedules.

use delayd::model::task::{Lane, ScheduleName};
use delayd::store::{
    DueSchedules, Hint, NewSchedule, Pause, Plan, Planned, Reader, Result, Schedule, ScheduleSet,
    Schedules, TopicEntry,
};

use super::Access;

impl Schedules for Access {
    async fn set_schedule(&self, topic: &TopicEntry, new: NewSchedule) -> Result<ScheduleSet> {
        let topic = topic.clone();
        let about = new.name.clone();
        self.ask("set_schedule", about, move |world| world.set_schedule(&topic, new.clone()))
            .await?
    }

    async fn schedules(
        &self,
        _: Reader,
        lane: &Lane,
        names: Vec<ScheduleName>,
    ) -> Result<Vec<Option<Schedule>>> {
        let (lane, about) = (lane.clone(), names.clone());
        self.ask("schedules", about, move |world| {
            world.look(|model| names.iter().map(|name| model.schedule(&lane, name)).collect())
        })
        .await
    }

    async fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Result<Vec<ScheduleName>> {
        let lane = lane.clone();
        self.ask("schedule_names", lane.clone(), move |world| {
            world.look(|model| model.schedule_names(&lane, after.as_ref(), limit))
        })
        .await
    }

    async fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Result<Option<Schedule>> {
        let (lane, name) = (lane.clone(), name.clone());
        self.ask("pause_schedule", name.clone(), move |world| {
            world.pause_schedule(&lane, &name, pause)
        })
        .await
    }

    async fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> Result<bool> {
        let (lane, name) = (lane.clone(), name.clone());
        self.ask("delete_schedule", name.clone(), move |world| world.delete_schedule(&lane, &name))
            .await
    }

    async fn forget_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<bool> {
        let (lane, name) = (lane.clone(), name.clone());
        self.ask("forget_schedule", name.clone(), move |world| {
            world.look(|model| model.forget_schedule(&lane, &name, revision))
        })
        .await
    }

    async fn plan(&self, plan: Plan) -> Result<Planned> {
        let lane = plan.name.lane_in(&plan.topic.topic, plan.topic.shards);
        let about = plan.name.clone();
        let planned = self.ask("plan", about, move |world| world.plan_occurrence(&plan)).await?;
        if let Planned::Added { due, .. } = planned {
            // A dead instance does not receive it.
            let _ = self.life.hints.send(Hint { lane, due, is_pull: false });
        }
        Ok(planned)
    }

    async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> {
        let lane = lane.clone();
        self.ask("due_schedules", lane.clone(), move |world| {
            world.look(|model| model.due_schedules(&lane, skip))
        })
        .await
    }
}
