//! The model's recurring schedules.

use std::collections::BTreeMap;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Lane, ScheduleName, State, StoreId, TaskId};
use delayd::store::{
    DueSchedules, MAX_DUE_SCHEDULES, MAX_RECENT, MAX_SCHEDULES, NewSchedule, NextDue, Pause, Plan,
    Planned, PlannedOccurrence, Schedule, ScheduleSet, UNPLANNED,
};

use crate::model::Model;
use crate::record::{Body, Record};

/// All schedules.
pub(crate) type Schedules = BTreeMap<(Lane, ScheduleName), Recurring>;

/// One schedule.
#[derive(Clone, Debug)]
pub(crate) struct Recurring {
    definition: String,
    revision: u64,
    set: UnixMillis,
    since: UnixMillis,
    cursor: Option<String>,
    /// `since` and `cursor` before the last plan.
    before: Option<(UnixMillis, Option<String>)>,
    paused: Option<(Pause, UnixMillis)>,
    look: Option<UnixMillis>,
    origin: Option<StoreId>,
    /// The last occurrence that was handed out before the newest one.
    ran: Option<TaskId>,
    recent: Vec<PlannedOccurrence>,
}

impl Recurring {
    fn shown(&self, name: &ScheduleName, now: UnixMillis) -> Schedule {
        let Self {
            definition,
            revision,
            set,
            since,
            cursor,
            before,
            paused,
            look,
            origin,
            recent,
            ..
        } = self.clone();
        let name = name.clone();
        Schedule {
            name,
            definition,
            revision,
            set,
            since,
            cursor,
            before,
            paused,
            look,
            origin,
            recent,
            now,
        }
    }

    fn last_moment(&self) -> UnixMillis {
        self.recent.first().map_or(UnixMillis(0), |newest| newest.moment)
    }
}

impl Model {
    /// Whether a task was never handed out and has not ended, and no cancel is pending.
    fn is_never_handed_out(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(Record::is_never_handed_out)
    }

    /// Removes the newest occurrences as long as they were never handed out. Returns the moment of
    /// the oldest of them.
    fn withdraw(&mut self, schedule: &mut Recurring) -> Option<UnixMillis> {
        std::iter::from_fn(|| self.withdraw_newest(schedule)).last()
    }

    /// Removes the last planned occurrence if it was never handed out. Returns its moment.
    fn withdraw_newest(&mut self, schedule: &mut Recurring) -> Option<UnixMillis> {
        let newest = *schedule.recent.first()?;
        if !self.is_never_handed_out(newest.task) {
            return None;
        }
        let now = self.now;
        self.task(newest.task).withdraw(UNPLANNED, now);
        if let Some((since, cursor)) = schedule.before.take() {
            (schedule.since, schedule.cursor) = (since, cursor);
        }
        schedule.recent.remove(0);
        Some(newest.moment)
    }

    pub(crate) fn set_schedule(&mut self, lane: &Lane, new: NewSchedule) -> ScheduleSet {
        self.set_schedule_in(StoreId(1), lane, new)
    }

    /// As [`Self::set_schedule`], in a store with this id.
    pub(crate) fn set_schedule_in(
        &mut self,
        own: StoreId,
        lane: &Lane,
        new: NewSchedule,
    ) -> ScheduleSet {
        let (now, name) = (self.now, new.name.clone());
        let key = (lane.clone(), name.clone());
        self.topics.note_schedules(&lane.topic);
        let known = self.schedules.get(&key).cloned();
        if let (Some(known), Some(moved)) = (&known, &new.moved) {
            let is_of_origin = known.origin.unwrap_or(own) == moved.origin;
            let is_moving = known.paused.is_some_and(|(kind, _)| kind == Pause::Move);
            match (is_of_origin, is_moving) {
                (false, _) => return ScheduleSet::Taken,
                (true, true) => return ScheduleSet::Own,
                (true, false) if known.set >= moved.set => {
                    return ScheduleSet::Unchanged(known.shown(&name, now));
                }
                _ => {}
            }
        } else if let Some(known) =
            known.as_ref().filter(|known| known.definition == new.definition)
        {
            return ScheduleSet::Unchanged(known.shown(&name, now));
        }
        let of_lane = self.schedules.keys().filter(|(of, _)| of == lane).count();
        let is_new = known.is_none();
        if is_new && of_lane >= MAX_SCHEDULES {
            return ScheduleSet::TooMany;
        }
        let mut schedule = known.unwrap_or_else(|| {
            let moved = new.moved.clone();
            let moved = moved.as_ref();
            Recurring {
                definition: String::new(),
                revision: 0,
                set: moved.map_or(now, |moved| moved.set),
                since: moved.map_or(now, |moved| moved.since),
                cursor: moved.and_then(|moved| moved.cursor.clone()),
                before: None,
                paused: moved.filter(|moved| moved.is_paused).map(|_| (Pause::Operator, now)),
                look: None,
                origin: moved.map(|moved| moved.origin).filter(|origin| *origin != own),
                ran: None,
                recent: Vec::new(),
            }
        });
        if !is_new {
            let since = match self.withdraw(&mut schedule) {
                Some(moment) if moment <= now => UnixMillis(moment.0 - 1),
                _ => now,
            };
            let since = new.moved.as_ref().map_or(since, |moved| moved.since);
            schedule.since = since.max(schedule.last_moment());
            (schedule.set, schedule.cursor, schedule.before) = (now, None, None);
            if let Some(moved) = &new.moved {
                (schedule.set, schedule.cursor) = (moved.set, moved.cursor.clone());
                schedule.paused = moved.is_paused.then_some((Pause::Operator, now));
            }
        }
        (schedule.revision, schedule.definition) = (new.revision, new.definition);
        schedule.look = schedule.paused.is_none().then_some(now);
        let shown = schedule.shown(&name, now);
        self.schedules.insert(key, schedule);
        if is_new { ScheduleSet::Created(shown) } else { ScheduleSet::Changed(shown) }
    }

    pub(crate) fn schedule(&self, lane: &Lane, name: &ScheduleName) -> Option<Schedule> {
        let schedule = self.schedules.get(&(lane.clone(), name.clone()))?;
        Some(schedule.shown(name, self.now))
    }

    pub(crate) fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> Vec<ScheduleName> {
        let names = self.schedules.keys().filter(|(of, _)| of == lane).map(|(_, name)| name);
        names.filter(|name| after.is_none_or(|after| *name > after)).take(limit).cloned().collect()
    }

    pub(crate) fn pause_schedule(
        &mut self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Option<Schedule> {
        let (now, key) = (self.now, (lane.clone(), name.clone()));
        let mut schedule = self.schedules.get(&key)?.clone();
        let before = schedule.paused.map(|(kind, _)| kind);
        match (before, pause) {
            (None, None)
            | (Some(Pause::Operator), Some(_))
            | (Some(Pause::Move), Some(Pause::Move)) => {}
            (_, Some(kind)) => {
                match kind {
                    Pause::Operator => self.withdraw(&mut schedule),
                    Pause::Move if schedule.before.is_none() => None,
                    Pause::Move => self.withdraw_newest(&mut schedule),
                };
                (schedule.paused, schedule.look) = (Some((kind, now)), None);
            }
            (Some(kind), None) => {
                if kind == Pause::Operator {
                    schedule.since = now.max(schedule.since).max(schedule.last_moment());
                }
                (schedule.paused, schedule.look) = (None, Some(now));
            }
        }
        let shown = schedule.shown(name, now);
        self.schedules.insert(key, schedule);
        Some(shown)
    }

    pub(crate) fn delete_schedule(&mut self, lane: &Lane, name: &ScheduleName) -> bool {
        let schedule = self.schedules.remove(&(lane.clone(), name.clone()));
        let was_there = schedule.is_some();
        schedule.into_iter().for_each(|mut schedule| {
            self.withdraw(&mut schedule);
        });
        was_there
    }

    pub(crate) fn forget_schedule(
        &mut self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> bool {
        match self.schedules.get(&(lane.clone(), name.clone())) {
            Some(known) if known.revision != revision || known.paused.is_none() => false,
            _ => {
                self.schedules.remove(&(lane.clone(), name.clone()));
                true
            }
        }
    }

    pub(crate) fn plan(&mut self, plan: &Plan) -> Planned {
        let (now, shards) = (self.now, plan.topic.shards);
        let lane = plan.name.lane_in(&plan.topic.topic, shards);
        let key = (lane.clone(), plan.name.clone());
        let Some(mut schedule) = self.schedules.get(&key).cloned() else { return Planned::Stale };
        let is_same = schedule.revision == plan.revision
            && schedule.since == plan.since
            && schedule.cursor == plan.cursor;
        if schedule.paused.is_some() || !is_same {
            return Planned::Stale;
        }
        let newest = schedule.recent.first().map(|newest| newest.task);
        let planned = if let Some(id) = newest.filter(|id| self.is_never_handed_out(*id)) {
            if let Some((count, until)) = plan.missed {
                let occurrence = &mut self.task(id).body.options.schedule;
                occurrence.iter_mut().for_each(|occurrence| occurrence.missed = count);
                schedule.since = until;
            }
            schedule.look = Some(plan.look_again);
            Planned::Waits
        } else if let Some(next) = &plan.next {
            if let Some(id) = newest
                && self.tasks.get(&id).is_some_and(Record::was_attempted)
            {
                schedule.ran = Some(id);
            }
            let task = next.task.clone();
            let id = self.draw(&plan.topic, Some(lane.shard));
            let due = self.due(task.moment);
            let mut body = Body {
                destination: task.destination,
                options: task.options,
                content: task.content,
            };
            if let Some(on_dead) = &mut body.options.on_dead {
                on_dead.task_id = Some(self.draw(&plan.topic, Some(lane.shard)));
            }
            let occurrence = body.options.schedule.as_mut().expect("it is an occurrence");
            if occurrence.after.is_some() && schedule.ran.is_some() {
                occurrence.after = schedule.ran;
            }
            schedule.before = Some((schedule.since, schedule.cursor.take()));
            (schedule.cursor, schedule.since) = (Some(occurrence.cursor.clone()), next.since);
            let moment = occurrence.moment;
            schedule.recent.insert(0, PlannedOccurrence { task: id, moment });
            schedule.recent.truncate(MAX_RECENT);
            schedule.look = Some(next.look);
            self.tasks.insert(id, Record::new(lane, body, due, now));
            Planned::Added { task: id, due }
        } else {
            schedule.look = None;
            Planned::Ended
        };
        self.schedules.insert(key, schedule);
        planned
    }

    /// Ends an occurrence whose predecessor has not ended. Returns whether it did.
    pub(crate) fn skip(&mut self, id: TaskId, outcome: &str) -> bool {
        let (now, record) = (self.now, &self.tasks[&id]);
        let before = record.body.options.schedule.as_ref().and_then(|occurrence| occurrence.after);
        let runs = |id: TaskId| {
            let record = self.tasks.get(&id);
            record
                .is_some_and(|record| matches!(record.listed().0, State::Scheduled | State::Leased))
        };
        let skips = !record.was_attempted() && before.is_some_and(runs);
        if skips {
            self.task(id).expire(outcome, now);
        }
        skips
    }

    fn looks(&self, lane: &Lane) -> Vec<(UnixMillis, ScheduleName)> {
        let of_lane = self.schedules.iter().filter(|((of, _), _)| of == lane);
        let mut looks: Vec<_> = of_lane
            .filter_map(|((_, name), schedule)| Some((schedule.look?, name.clone())))
            .collect();
        looks.sort_unstable();
        looks
    }

    pub(crate) fn due_schedules(&self, lane: &Lane, skip: usize) -> DueSchedules {
        let now = self.now;
        let due = self.looks(lane).into_iter().filter(|(look, _)| *look <= now);
        let names = due.map(|(_, name)| name).skip(skip).take(MAX_DUE_SCHEDULES);
        DueSchedules { now, names: names.collect() }
    }

    /// The earliest look of each lane.
    pub(crate) fn next_plans(&self, lanes: &[Lane]) -> NextDue {
        let first = |lane: &Lane| self.looks(lane).first().map(|(look, _)| *look);
        NextDue { now: self.now, lanes: lanes.iter().map(first).collect() }
    }
}
