//! The part `Schedules` of the contract; each method sends its work to a thread.

use std::sync::Arc;

use super::recurring_topics::{RecurringTopics, TopicNote};
use super::write_tx::WriteTx;
use super::{Embedded, PER_TASK, schedules};
use crate::model::task::{Lane, ScheduleName, Topic};
use crate::store::{
    DueSchedules, FORMAT_OF_SCHEDULES, NewSchedule, Pause, Plan, Planned, Reader, Result, Schedule,
    ScheduleSet, TopicEntry,
};

/// Whether the topic has the schedule after this.
fn is_stored(set: &ScheduleSet) -> bool {
    matches!(set, ScheduleSet::Created(_) | ScheduleSet::Changed(_) | ScheduleSet::Unchanged(_))
}

/// The note of a topic that has no schedules after a deletion. The writer reads it: it sees what
/// was set before, and what is set later makes another note.
fn note_to_forget(
    tx: &WriteTx<'_>,
    recurring: &RecurringTopics,
    topic: &Topic,
) -> rusqlite::Result<Option<TopicNote>> {
    let has_schedules = schedules::topic_has(tx.db, topic.as_str())?;
    Ok(recurring.noted(topic).filter(|_| !has_schedules))
}

impl Embedded {
    pub(crate) async fn set_schedule(
        &self,
        topic: &TopicEntry,
        new: NewSchedule,
    ) -> Result<ScheduleSet> {
        if self.format < FORMAT_OF_SCHEDULES {
            return Ok(ScheduleSet::OldFormat);
        }
        let (bytes, own) = (new.definition.len() + PER_TASK, self.id);
        let (entry, recurring) = (topic.clone(), Arc::clone(&self.recurring));
        let set = move |tx: &mut WriteTx<'_>| {
            let set = schedules::set(tx, own, &entry, &new)?;
            if set.as_ref().is_ok_and(is_stored) {
                recurring.note(&entry.topic);
            }
            Ok(set)
        };
        self.writes.add(1, bytes, set).await?
    }

    pub(crate) async fn schedules(
        &self,
        reader: Reader,
        lane: &Lane,
        names: Vec<ScheduleName>,
    ) -> Result<Vec<Option<Schedule>>> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.reader_for(reader).run(move |db| schedules::read(db, &lane, &names, clock.now())).await
    }

    pub(crate) async fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Result<Vec<ScheduleName>> {
        let lane = lane.clone();
        self.reads.run(move |db| schedules::names(db, &lane, after.as_ref(), limit)).await
    }

    pub(crate) async fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Result<Option<Schedule>> {
        let (lane, name) = (lane.clone(), name.clone());
        self.writes.ask(1, move |tx| schedules::pause_in(tx, &lane, &name, pause)).await
    }

    pub(crate) async fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> Result<bool> {
        let (of, name, recurring) = (lane.clone(), name.clone(), Arc::clone(&self.recurring));
        let delete = move |tx: &mut WriteTx<'_>| {
            let is_deleted = schedules::delete(tx, &of, &name)?;
            Ok((is_deleted, note_to_forget(tx, &recurring, &of.topic)?))
        };
        let (is_deleted, note) = self.writes.ask(1, delete).await?;
        self.recurring.forget(&lane.topic, note);
        Ok(is_deleted)
    }

    pub(crate) async fn forget_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<bool> {
        let (of, name, recurring) = (lane.clone(), name.clone(), Arc::clone(&self.recurring));
        let forget = move |tx: &mut WriteTx<'_>| {
            let is_gone = schedules::forget(tx, &of, &name, revision)?;
            Ok((is_gone, note_to_forget(tx, &recurring, &of.topic)?))
        };
        let (is_gone, note) = self.writes.ask(1, forget).await?;
        self.recurring.forget(&lane.topic, note);
        Ok(is_gone)
    }

    pub(crate) async fn plan(&self, plan: Plan) -> Result<Planned> {
        let content = plan.next.as_ref().map_or(0, |next| next.task.content.len());
        self.writes.add(1, content + PER_TASK, move |tx| schedules::plan_in(tx, &plan)).await?
    }

    pub(crate) async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.polls.run(move |db| schedules::due(db, &lane, clock.now(), skip)).await
    }
}

/// Damages the record of a schedule in a file.
#[cfg(test)]
pub(crate) fn garble_schedule(path: &std::path::Path, name: &str) {
    let db = rusqlite::Connection::open(path).unwrap();
    let garble = super::sql::recurring::GARBLE;
    assert_eq!(db.execute(garble, [name]).unwrap(), 1, "{name}");
}

/// Makes a file with schedules fail when one with the name `refused` is stored.
#[cfg(test)]
pub(crate) fn refuse_schedule(path: &std::path::Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(super::sql::recurring::REFUSE).unwrap();
}
