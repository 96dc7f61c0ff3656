//! The model's side of [`crate::machine`]: resolves a step into a call with the model's ids and
//! receipts, and answers it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{
    Lane, Occurrence, OnDead, Options, Receipt, ScheduleName, State, StoreId, TaskId,
};
use delayd::store::{
    Added, Adopted, AdoptedStanding, Adoptee, AttemptNote, Cancelled, Claim, Cleared, Condition,
    Grant, Idempotency, LockToken, Misfire, Misfired, Moment, NewContent, NewSchedule, NewTask,
    NextOccurrence, Pause, Plan, Planned, Position, Rescheduled, Result, Schedule, ScheduleSet,
    Selected, Settle, Settled, Spread, TaskName, TopicEntry, Transition, Want,
};
use delayd_wire::Span;

use crate::bench::{START, ms, receipt, topic_of};
use crate::model::Model;
use crate::steps::{
    Addition, ConditionPick, Planning, Policing, ReceiptPick, Recurring, Step, Stranger, TOPICS,
    TaskPick, destination, lanes, policy,
};

/// A call with the model's ids and receipts.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Nothing,
    Add(Vec<NewTask>),
    Claim(Claim),
    Settle(Vec<Settle>),
    Extend(Lane, TaskId, Receipt, Duration),
    Cancel(Lane, TaskId, Option<Condition>),
    Reschedule(Lane, TaskId, Option<Condition>, Moment, Option<NewContent>),
    Replay(Lane, Vec<TaskId>, Spread),
    Purge(Lane, State, UnixMillis, usize),
    Discard(Lane, State, Vec<TaskId>),
    RemoveContents(Lane, Vec<TaskId>),
    Clear(Lane),
    Note(Vec<AttemptNote>),
    Lend(Lane, Vec<TaskId>, Receipt, Duration),
    Adopt(Vec<Adoptee>),
    Police(TopicEntry, Policing),
    SetSchedule(TopicEntry, NewSchedule),
    PauseSchedule(Lane, ScheduleName, Option<Pause>),
    DeleteSchedule(Lane, ScheduleName),
    Plan(Box<Plan>),
    SetClock(UnixMillis),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Nothing,
    Added(Vec<Result<Added>>),
    Granted(Grant),
    Settled(Vec<Settled>),
    Cancelled(Cancelled),
    Rescheduled(Rescheduled),
    Count(usize),
    Cleared(Cleared),
    Lent(Vec<bool>),
    Adopted(Vec<Adopted>),
    /// The result, if the topic exists.
    Policed(Option<String>),
    ScheduleSet(ScheduleSet),
    Schedule(Option<Schedule>),
    Deleted(bool),
    Planned(Planned),
}

/// One of the schedules of the machine.
pub(crate) fn schedule_name(which: u8) -> ScheduleName {
    format!("schedule-{which}").parse().unwrap()
}

fn adoptee(task: &Stranger) -> Adoptee {
    let (state, later) = task.standing;
    Adoptee {
        topic: topic_of(TOPICS[0], 1),
        id: TaskId(1_700_000_000_000_000 + task.id),
        destination: destination(task.destination),
        created: UnixMillis(START.0 - 3_600_000),
        due: task.due,
        standing: match state {
            State::Scheduled => AdoptedStanding::Waiting { due: task.due + later },
            state => AdoptedStanding::Ended { state, finished: UnixMillis(START.0) },
        },
        attempts: task.attempts,
        outcome: if task.attempts > 0 { "503".into() } else { String::new() },
        options: Options {
            origin: task.origin.map(StoreId),
            key: task.key.map(|key| format!("key {key}")),
            expires_after: task.expires_after.map(Span),
            ..Options::default()
        },
        key_set: task.key_set,
        lent: task.lent,
        content: format!("content of another store {}", task.content),
    }
}

/// More than there are tasks: a clear with a smaller limit may take any of them.
pub(crate) const ALL: usize = 1_000;

/// The model, the things that can be picked, and the last call with the model's answer.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) tasks: Vec<(Lane, TaskId)>,
    /// Tasks that may have notes.
    pub(crate) noted: BTreeSet<(Lane, TaskId)>,
    /// How often the clock was set back. An expired window may be forgotten or not, so older
    /// idempotency keys are not used after that.
    era: u32,
    receipts: Vec<Receipt>,
    /// Tasks as callers selected them, possibly long ago.
    selected: BTreeMap<TaskId, Selected>,
    /// How many steps there were.
    steps: u64,
    pub(crate) call: Call,
    pub(crate) answer: Answer,
}

impl World {
    /// The world before the first call.
    pub(crate) fn new() -> Self {
        Self {
            model: Model::new(START),
            tasks: Vec::new(),
            noted: BTreeSet::new(),
            era: 0,
            receipts: Vec::new(),
            selected: BTreeMap::new(),
            steps: 0,
            call: Call::Nothing,
            answer: Answer::Nothing,
        }
    }

    /// Resolves a step and lets the model answer it.
    pub(crate) fn take(mut self, step: &Step) -> Self {
        self.steps += 1;
        self.call = self.resolve(step);
        self.era += u32::from(matches!(step, Step::SetBack(_)));
        if let Call::Cancel(lane, id, Some(_)) | Call::Reschedule(lane, id, Some(_), ..) =
            &self.call
            && let Some(selected) = self.model.selected(lane, *id)
        {
            self.selected.insert(*id, selected);
        }
        self.answer = self.answer();
        self
    }

    fn task(&self, pick: &TaskPick) -> (Lane, TaskId) {
        if self.tasks.is_empty() {
            return (lanes().remove(0), TaskId(1));
        }
        let (lane, id) = pick.task.get(&self.tasks).clone();
        let lane = if pick.is_lost {
            lanes().into_iter().find(|other| *other != lane).unwrap()
        } else {
            lane
        };
        (lane, id)
    }

    fn receipt(&self, pick: &ReceiptPick, id: TaskId) -> Receipt {
        let own = self.model.receipts_of(id);
        match pick {
            ReceiptPick::Own(which) if !own.is_empty() => which.get(&own).clone(),
            ReceiptPick::Any(which) if !self.receipts.is_empty() => {
                which.get(&self.receipts).clone()
            }
            ReceiptPick::MadeUp(text) => receipt(text),
            _ => receipt("stranger"),
        }
    }

    fn resolve(&self, step: &Step) -> Call {
        match step {
            Step::Add { topic, tasks } => {
                let topic = topic_of(TOPICS[*topic], 1);
                let task = |(i, task): (usize, &Addition)| NewTask {
                    content: format!("content {} {i}", self.tasks.len()),
                    ..self.new_task(&topic, task)
                };
                Call::Add(tasks.iter().enumerate().map(task).collect())
            }
            Step::Claim { lane, wants, lease, is_worker, more, after, misfires } => {
                let now = self.model.now;
                let misfire = |(ago, span, becomes): &(Duration, Duration, Misfired)| Misfire {
                    from: now - *ago - *span,
                    to: now - *ago,
                    becomes: *becomes,
                };
                let want = |(which, slots): &(usize, usize)| Want {
                    destination: destination(*which),
                    slots: *slots,
                };
                Call::Claim(Claim {
                    lane: lanes().remove(*lane),
                    wants: wants.iter().map(want).collect(),
                    lease: *lease,
                    holder: is_worker.then(|| LockToken("machine".into())),
                    more: *more,
                    after: after.map(|ago| Position { moment: now - ago, destination: None }),
                    in_hand: 0,
                    misfires: misfires.iter().map(misfire).collect(),
                })
            }
            Step::Settle(settles) => {
                let settle = |(task, by, transition): &(TaskPick, ReceiptPick, Transition)| {
                    let (lane, id) = self.task(task);
                    Settle {
                        lane,
                        id,
                        receipt: self.receipt(by, id),
                        transition: transition.clone(),
                    }
                };
                Call::Settle(settles.iter().map(settle).collect())
            }
            Step::Extend(task, by, lease) => {
                let (lane, id) = self.task(task);
                Call::Extend(lane, id, self.receipt(by, id), *lease)
            }
            Step::Cancel(task, only) => {
                let (lane, id) = self.task(task);
                let only = self.condition(&lane, id, only.as_ref());
                Call::Cancel(lane, id, only)
            }
            Step::Reschedule(task, only, moment, content) => {
                let (lane, id) = self.task(task);
                let only = self.condition(&lane, id, only.as_ref());
                let content = content.map(|which| NewContent {
                    destination: destination(which),
                    content: "new".into(),
                    keeps_mode: which % 2 == 0,
                });
                Call::Reschedule(lane, id, only, *moment, content)
            }
            Step::Replay(tasks, spread) => {
                Call::Replay(lanes().remove(0), self.ids(tasks), *spread)
            }
            Step::Purge { lane, state, age, limit } => {
                Call::Purge(lanes().remove(*lane), *state, self.model.now - *age, *limit)
            }
            Step::RemoveContents(tasks) => Call::RemoveContents(lanes().remove(0), self.ids(tasks)),
            Step::Discard(state, tasks) => {
                Call::Discard(lanes().remove(0), *state, self.ids(tasks))
            }
            Step::Clear { lane } => Call::Clear(lanes().remove(*lane)),
            Step::Note(notes) => {
                Call::Note(notes.iter().map(|(task, attempt)| self.note(task, *attempt)).collect())
            }
            Step::Lend(tasks, lease) => {
                let by = receipt(&format!("mover-{}", self.receipts.len()));
                Call::Lend(lanes().remove(0), self.ids(tasks), by, *lease)
            }
            Step::Adopt(strangers) => Call::Adopt(strangers.iter().map(adoptee).collect()),
            Step::Police { topic, how } => Call::Police(topic_of(TOPICS[*topic], 1), how.clone()),
            Step::Recur { topic, name, how } => self.recur(*topic, schedule_name(*name), how),
            Step::Advance(by) => Call::SetClock(self.model.now + *by),
            Step::SetBack(by) => Call::SetClock(self.model.now - *by),
        }
    }

    fn recur(&self, topic: usize, name: ScheduleName, how: &Recurring) -> Call {
        let (entry, lane) = (topic_of(TOPICS[topic], 1), lanes().remove(topic));
        match how {
            Recurring::Set(definition) => Call::SetSchedule(
                entry,
                NewSchedule {
                    name,
                    definition: format!("definition\n{definition}"),
                    revision: self.steps,
                    moved: None,
                },
            ),
            Recurring::Pause(pause) => Call::PauseSchedule(lane, name, *pause),
            Recurring::Delete => Call::DeleteSchedule(lane, name),
            Recurring::Plan(planning) => match self.model.schedule(&lane, &name) {
                Some(schedule) => Call::Plan(Box::new(self.planned(entry, &schedule, planning))),
                None => Call::Nothing,
            },
        }
    }

    fn planned(&self, topic: TopicEntry, schedule: &Schedule, planning: &Planning) -> Plan {
        let now = self.model.now;
        let due = now - planning.ago + planning.after;
        let occurrence = Occurrence {
            name: schedule.name.clone(),
            moment: due,
            cursor: format!("c{}[UTC]", self.steps),
            after: planning.skips.then_some(TaskId(0)),
            missed: planning.missed.unwrap_or_default(),
        };
        let addition = Addition {
            destination: planning.destination,
            moment: Moment::At(due),
            key: None,
            idempotency: None,
            expires_after: planning.expires_after,
            on_dead: planning.on_dead,
            quota: None,
        };
        let mut task = self.new_task(&topic, &addition);
        task.options.schedule = Some(Box::new(occurrence));
        task.content = format!("occurrence {}", self.steps);
        let next =
            NextOccurrence { task, since: schedule.since + planning.ago, look: due.max(now) };
        Plan {
            topic,
            name: schedule.name.clone(),
            revision: schedule.revision,
            cursor: schedule.cursor.clone(),
            since: schedule.since + Duration::from_millis(planning.is_stale.into()),
            next: (!planning.is_last).then_some(next),
            missed: planning.missed.map(|count| (count, now)),
            look_again: now + planning.after,
        }
    }

    /// A name of the task, which may have passed to another one, or one that it never had.
    fn condition(
        &self,
        lane: &Lane,
        id: TaskId,
        pick: Option<&ConditionPick>,
    ) -> Option<Condition> {
        let own = || self.model.key_of(id);
        let other = |key: u8| format!("key {key}");
        Some(Condition::Named(match pick? {
            ConditionPick::Key(key) => TaskName::Key(own().unwrap_or_else(|| other(*key))),
            ConditionPick::Idempotency(key) => {
                let idempotency_key = format!("key {key} of era {}", self.era);
                TaskName::Idempotency { key: own(), idempotency_key }
            }
            ConditionPick::Other(key) => TaskName::Key(other(*key)),
            ConditionPick::Selected => {
                let before = self.selected.get(&id).cloned();
                let selected = before.or_else(|| self.model.selected(lane, id))?;
                return Some(Condition::Selected(selected));
            }
        }))
    }

    fn ids(&self, picks: &[TaskPick]) -> Vec<TaskId> {
        picks.iter().map(|pick| self.task(pick).1).collect()
    }

    fn new_task(&self, topic: &TopicEntry, task: &Addition) -> NewTask {
        let on_dead = OnDead { sn: destination(3), url: "/dead".into(), task_id: None };
        let options = Options {
            max_attempts: (task.quota == Some(1)).then_some(3),
            key: task.key.map(|key| format!("key {key}")),
            expires_after: task.expires_after.map(Span),
            on_dead: task.on_dead.then_some(on_dead),
            ..Options::default()
        };
        let idempotency = task.idempotency.map(|(key, fingerprint, window)| Idempotency {
            key: format!("key {key} of era {}", self.era),
            fingerprint,
            window,
        });
        NewTask {
            topic: topic.clone(),
            destination: destination(task.destination),
            moment: task.moment,
            options,
            content: String::new(),
            idempotency,
            quota: task.quota,
        }
    }

    fn note(&self, task: &TaskPick, attempt: u32) -> AttemptNote {
        let ((lane, id), started) = (self.task(task), self.model.now);
        AttemptNote {
            lane,
            id,
            attempt,
            started,
            took: ms(7),
            wait: attempt.is_multiple_of(2).then(|| ms(5_000)),
            outcome: "503".into(),
            answer: "{}".into(),
        }
    }

    /// Lets the model do what the call says.
    fn answer(&mut self) -> Answer {
        let model = &mut self.model;
        match self.call.clone() {
            Call::Nothing => Answer::Nothing,
            Call::Add(tasks) => {
                let added: Vec<Result<Added>> =
                    tasks.iter().map(|task| model.add(task.clone())).collect();
                for (task, added) in tasks.iter().zip(&added) {
                    let Ok(Added { id, .. }) = *added else { continue };
                    let lane = task.topic.lane_of(id);
                    let call = model.get(&lane, id).and_then(|task| task.options.on_dead?.task_id);
                    for id in call.into_iter().chain([id]) {
                        if !self.tasks.contains(&(lane.clone(), id)) {
                            self.tasks.push((lane.clone(), id));
                        }
                    }
                }
                Answer::Added(added)
            }
            Call::Claim(claim) => {
                let receipt = receipt(&format!("claim-{}", self.receipts.len()));
                self.receipts.push(receipt.clone());
                Answer::Granted(model.claim(&claim, receipt))
            }
            Call::Settle(settles) => {
                Answer::Settled(settles.iter().map(|settle| model.settle(settle)).collect())
            }
            Call::Extend(lane, id, by, lease) => {
                Answer::Settled(vec![model.extend(&lane, id, &by, lease)])
            }
            Call::Cancel(lane, id, only) => {
                Answer::Cancelled(model.cancel(&lane, id, only.as_ref()))
            }
            Call::Reschedule(lane, id, only, moment, content) => {
                let only = only.as_ref();
                Answer::Rescheduled(model.reschedule(&lane, id, only, moment, content))
            }
            Call::Replay(lane, ids, spread) => {
                Answer::Count(model.replay(&lane, &ids, None, spread))
            }
            Call::Purge(lane, state, before, limit) => {
                Answer::Count(model.purge(&lane, 0, state, before, limit))
            }
            Call::Discard(lane, state, ids) => {
                Answer::Count(model.discard(&lane, state, &ids, None))
            }
            Call::RemoveContents(lane, ids) => {
                model.remove_contents(&lane, &ids);
                Answer::Nothing
            }
            Call::Clear(lane) => Answer::Cleared(model.clear(&lane, ALL)),
            Call::Note(notes) => {
                self.noted.extend(notes.iter().map(|note| (note.lane.clone(), note.id)));
                model.note(notes);
                Answer::Nothing
            }
            Call::Lend(lane, ids, by, lease) => {
                self.receipts.push(by.clone());
                Answer::Lent(model.lend(&lane, &ids, &by, lease))
            }
            Call::Adopt(tasks) => {
                for task in &tasks {
                    let name = (task.topic.lane_of(task.id), task.id);
                    if !self.tasks.contains(&name) {
                        self.tasks.push(name);
                    }
                }
                Answer::Adopted(
                    tasks
                        .into_iter()
                        .map(|task| model.adopt(task).expect("the entry of the topic is current"))
                        .collect(),
                )
            }
            Call::Police(entry, how) => Answer::Policed(match how {
                Policing::SetPolicy(attempts) => {
                    model.set_policy(&entry.topic, &policy(attempts)).then(String::new)
                }
                Policing::Pause => model.pause(&entry.topic).map(|since| since.to_string()),
                Policing::Resume(becomes) => {
                    model.resume(&entry.topic, becomes).map(|was| was.to_string())
                }
                Policing::Unregister => model.unregister(&entry).then(String::new),
            }),
            Call::SetSchedule(entry, new) => {
                model.register(entry.clone());
                let lane = new.name.lane_in(&entry.topic, entry.shards);
                Answer::ScheduleSet(model.set_schedule(&lane, new))
            }
            Call::PauseSchedule(lane, name, pause) => {
                Answer::Schedule(model.pause_schedule(&lane, &name, pause))
            }
            Call::DeleteSchedule(lane, name) => {
                Answer::Deleted(model.delete_schedule(&lane, &name))
            }
            Call::Plan(plan) => {
                let planned = model.plan(&plan);
                if let Planned::Added { task: id, .. } = planned {
                    let lane = plan.topic.lane_of(id);
                    let call = model.get(&lane, id).and_then(|task| task.options.on_dead?.task_id);
                    self.tasks.extend(call.into_iter().chain([id]).map(|id| (lane.clone(), id)));
                }
                Answer::Planned(planned)
            }
            Call::SetClock(now) => {
                model.now = now;
                Answer::Nothing
            }
        }
    }
}
