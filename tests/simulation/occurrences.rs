//! The expected occurrences of recurring schedules, from the requests and their answers.
//!
//! The rules of the simulation are simple on purpose: a schedule has a moment each time that the
//! seconds of a minute are a multiple of a number. So the moments are computed here without the
//! code under test.
//!
//! A *stretch* is the time of one definition between pauses. Within a stretch, the occurrences that
//! were called or ended stand for each moment, without a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::schedule::{Definition, MisfireRule};
use delayd::model::task::{Lane, ScheduleName, State, TaskId};
use delayd::store::{Moment, NewSchedule, Plan, Planned};

use crate::account::Account;
use crate::checker::Violation;
use crate::history::{Asked, CalledOccurrence, Change};
use crate::schedule::MADE_UP_WITHIN;

/// A backlog that is not made up for when the schedules are stopped must have been called this
/// shortly before.
const MAKES_UP: Duration = Duration::from_secs(15);

type Key = (Lane, ScheduleName);
type Tasks = BTreeMap<TaskId, Account>;

/// All schedules of a history.
#[derive(Debug, Default)]
pub(crate) struct Occurrences {
    schedules: BTreeMap<Key, Recurring>,
    stretches: Vec<Stretch>,
    planned: BTreeMap<TaskId, Occurrence>,
    /// The moment of each `webhook-id` that was called.
    moments: BTreeMap<String, (Key, UnixMillis)>,
    /// The `webhook-id` and the tasks of each moment that was called.
    ids: BTreeMap<(Key, UnixMillis), (String, BTreeSet<TaskId>)>,
    pub(crate) forgotten: BTreeSet<TaskId>,
}

/// A schedule as it is now.
#[derive(Clone, Debug)]
struct Recurring {
    revision: u64,
    step_ms: i64,
    misfire: MisfireRule,
    is_paused: bool,
    cursor: Option<String>,
    /// The cursor before the last plan, unless that was withdrawn.
    before: Option<Option<String>>,
    /// The planned occurrences that were not withdrawn.
    planned: Vec<TaskId>,
    /// The last one that was handed out before the newest.
    ran: Option<TaskId>,
    stretch: usize,
}

#[derive(Debug)]
struct Stretch {
    key: Key,
    /// Only moments after it count.
    from: UnixMillis,
    step_ms: i64,
    misfire: MisfireRule,
    /// It lasts until the schedules are deleted at the end.
    is_last: bool,
}

#[derive(Debug)]
struct Occurrence {
    key: Key,
    stretch: usize,
    moment: UnixMillis,
    /// With `overlap: skip`, the occurrence that must have ended.
    after: Option<TaskId>,
    missed: u64,
    /// Since when it counts: its first call, or its end without one.
    counts_since: Option<Duration>,
    is_withdrawn: bool,
    /// The schedule before it was planned.
    undo: Recurring,
}

/// The first moment after `from`.
fn after(from: UnixMillis, step_ms: i64) -> UnixMillis {
    UnixMillis((from.0.div_euclid(step_ms) + 1) * step_ms)
}

fn is_unsettled(tasks: &Tasks, id: TaskId) -> bool {
    tasks.get(&id).is_some_and(|task| !task.state.is_final())
}

fn is_never_handed_out(tasks: &Tasks, id: TaskId) -> bool {
    tasks.get(&id).is_some_and(|task| task.attempts == 0 && !task.state.is_final())
}

impl Occurrences {
    pub(crate) fn set(
        &mut self,
        tasks: &mut Tasks,
        (lane, new): (&Lane, &NewSchedule),
        change: Change,
        now: UnixMillis,
    ) {
        let key = (lane.clone(), new.name.clone());
        let definition = Definition::read(&new.definition).expect("clients set valid definitions");
        let every = definition.cron.as_deref().and_then(|cron| cron.strip_prefix("*/"));
        let every = every.and_then(|every| every.split(' ').next()?.parse::<i64>().ok());
        let step_ms = every.expect("the clients' expressions have this form") * 1_000;
        let mut from = now;
        if change == Change::Changed
            && let Some(moment) = self.withdraw(tasks, &key).filter(|moment| *moment <= now)
        {
            from = UnixMillis(moment.0 - 1);
        }
        from = from.max(self.last_moment(&key));
        let misfire = definition.misfire;
        let stretch = self.begin(&key, from, step_ms, misfire);
        let known = self.schedules.remove(&key).filter(|_| change == Change::Changed);
        let (is_paused, planned, ran) = known
            .map_or((false, Vec::new(), None), |known| (known.is_paused, known.planned, known.ran));
        let (revision, cursor, before) = (new.revision, None, None);
        self.schedules.insert(
            key,
            Recurring {
                revision,
                step_ms,
                misfire,
                is_paused,
                cursor,
                before,
                planned,
                ran,
                stretch,
            },
        );
    }

    fn begin(&mut self, key: &Key, from: UnixMillis, step_ms: i64, misfire: MisfireRule) -> usize {
        self.stretches.push(Stretch { key: key.clone(), from, step_ms, misfire, is_last: false });
        self.stretches.len() - 1
    }

    fn last_moment(&self, key: &Key) -> UnixMillis {
        let newest = self.schedules.get(key).and_then(|schedule| schedule.planned.last());
        newest.map_or(UnixMillis(0), |id| self.planned[id].moment)
    }

    /// The newest occurrences must not be handed out, as long as they never were. Returns the
    /// moment of the oldest of them.
    fn withdraw(&mut self, tasks: &mut Tasks, key: &Key) -> Option<UnixMillis> {
        std::iter::from_fn(|| self.withdraw_newest(tasks, key)).last()
    }

    fn withdraw_newest(&mut self, tasks: &mut Tasks, key: &Key) -> Option<UnixMillis> {
        let schedule = self.schedules.get_mut(key)?;
        let newest = *schedule.planned.last()?;
        if !is_never_handed_out(tasks, newest) {
            return None;
        }
        let task = tasks.get_mut(&newest)?;
        (task.is_cancelled, task.state, task.due) = (true, State::Cancelled, None);
        schedule.planned.pop();
        if let Some(before) = schedule.before.take() {
            schedule.cursor = before;
        }
        let occurrence = self.planned.get_mut(&newest)?;
        occurrence.is_withdrawn = true;
        Some(occurrence.moment)
    }

    pub(crate) fn paused(
        &mut self,
        tasks: &mut Tasks,
        (lane, name): (&Lane, &ScheduleName),
        is_paused: bool,
        now: UnixMillis,
    ) {
        let key = (lane.clone(), name.clone());
        if is_paused {
            self.withdraw(tasks, &key);
        }
        let last = self.last_moment(&key);
        let Some(schedule) = self.schedules.get_mut(&key) else { return };
        schedule.is_paused = is_paused;
        let (step_ms, misfire) = (schedule.step_ms, schedule.misfire);
        if !is_paused {
            let stretch = self.begin(&key, now.max(last), step_ms, misfire);
            self.schedules.get_mut(&key).expect("it was found").stretch = stretch;
        }
    }

    pub(crate) fn deleted(
        &mut self,
        tasks: &mut Tasks,
        (lane, name): (&Lane, &ScheduleName),
        is_at_the_end: bool,
    ) {
        let key = (lane.clone(), name.clone());
        self.withdraw(tasks, &key);
        if let Some(schedule) = self.schedules.remove(&key) {
            self.stretches[schedule.stretch].is_last = is_at_the_end && !schedule.is_paused;
        }
    }

    /// An occurrence was added.
    pub(crate) fn planned(
        &mut self,
        tasks: &mut Tasks,
        (lane, plan): (&Lane, &Plan),
        answer: Planned,
        now: UnixMillis,
    ) -> Option<Violation> {
        let Planned::Added { task: id, due } = answer else { return None };
        let next = plan.next.as_ref()?;
        let asked = Asked { moment: Moment::At(due), ..Asked::of(&next.task) };
        tasks.insert(id, Account::stored(lane.clone(), &asked, None, now));
        let named = next.task.options.schedule.as_ref()?;
        let key = (lane.clone(), plan.name.clone());
        let Some(schedule) = self.schedules.get_mut(&key) else {
            return Some(Violation::PlannedFromOld);
        };
        let is_read = (plan.revision, &plan.cursor) == (schedule.revision, &schedule.cursor);
        let is_from_old = !is_read || schedule.is_paused;
        let undo = schedule.clone();
        let newest = schedule.planned.last().copied();
        let waits = newest.is_some_and(|newest| is_never_handed_out(tasks, newest));
        if let Some(newest) = newest
            && tasks.get(&newest).is_some_and(|task| task.attempts > 0)
        {
            schedule.ran = Some(newest);
        }
        schedule.before = Some(schedule.cursor.replace(named.cursor.clone()));
        schedule.planned.push(id);
        let occurrence = Occurrence {
            key,
            stretch: schedule.stretch,
            moment: named.moment,
            after: named.after.and(schedule.ran),
            missed: 0,
            counts_since: None,
            is_withdrawn: false,
            undo,
        };
        self.planned.insert(id, occurrence);
        match (is_from_old, waits) {
            (true, _) => Some(Violation::PlannedFromOld),
            (_, true) => Some(Violation::TwoOccurrencesWait),
            _ => None,
        }
    }

    /// A failover has forgotten the plan of an occurrence, and what came after it.
    pub(crate) fn forgot(&mut self, tasks: &mut Tasks, id: TaskId) {
        tasks.remove(&id);
        self.forgotten.insert(id);
        if let Some(occurrence) = self.planned.get(&id) {
            self.schedules.insert(occurrence.key.clone(), occurrence.undo.clone());
        }
    }

    /// A claim has ended it, because an earlier occurrence runs.
    pub(crate) fn skipped(&self, tasks: &mut Tasks, id: TaskId) -> Option<Violation> {
        let runs = self.overlaps(tasks, id);
        let task = tasks.get_mut(&id)?;
        let was_waiting = task.attempts == 0 && !task.state.is_final();
        (task.state, task.due) = (State::Expired, None);
        (!runs || !was_waiting).then_some(Violation::SkippedWithoutReason)
    }

    fn overlaps(&self, tasks: &Tasks, id: TaskId) -> bool {
        let before = self.planned.get(&id).and_then(|occurrence| occurrence.after);
        before.is_some_and(|before| is_unsettled(tasks, before))
    }

    /// It is handed out.
    pub(crate) fn handed_out(
        &self,
        tasks: &Tasks,
        id: TaskId,
        now: UnixMillis,
    ) -> Option<Violation> {
        let occurrence = self.planned.get(&id)?;
        // The clock may have been set back since it was handed out first.
        let is_new = tasks.get(&id).is_some_and(|task| task.grants.is_empty());
        if is_new && now < occurrence.moment {
            return Some(Violation::Early);
        }
        let is_first = tasks.get(&id).is_some_and(|task| task.attempts == 0);
        (is_first && self.overlaps(tasks, id)).then_some(Violation::Overlapped)
    }

    /// A receiver is called. With a clock that jumped, a moment may come twice, and some are not
    /// counted.
    pub(crate) fn called(
        &mut self,
        id: TaskId,
        called: &CalledOccurrence,
        (at, now): (Duration, UnixMillis),
        has_jumped: bool,
    ) -> Option<Violation> {
        let occurrence = self.planned.get_mut(&id)?;
        let key = (occurrence.key.0.clone(), called.name.clone());
        occurrence.missed = occurrence.missed.max(called.missed);
        occurrence.counts_since.get_or_insert(at);
        let stands_for = occurrence.moment.0 + occurrence.undo.step_of(called.missed);
        if !has_jumped && stands_for > now.0 {
            return Some(Violation::MissedMiscounted);
        }
        let named = (key.clone(), called.moment);
        let known = self.moments.entry(called.webhook_id.clone()).or_insert_with(|| named.clone());
        if *known != named {
            return Some(Violation::TwoMomentsOfAnId);
        }
        let fresh = || (called.webhook_id.clone(), BTreeSet::new());
        let (webhook_id, tasks) = self.ids.entry(named).or_insert_with(fresh);
        tasks.insert(id);
        if *webhook_id != called.webhook_id {
            return Some(Violation::MomentTwice);
        }
        let known = tasks.iter().filter(|id| !self.forgotten.contains(id)).count();
        (known > 1 && !has_jumped).then_some(Violation::OccurrenceTwice)
    }

    /// Its final state, and how many moments it stands for.
    pub(crate) fn found(&mut self, id: TaskId, state: State, missed: u64, at: Duration) {
        if let Some(occurrence) = self.planned.get_mut(&id)
            && state != State::Cancelled
        {
            occurrence.missed = occurrence.missed.max(missed);
            occurrence.counts_since.get_or_insert(at);
        }
    }

    /// Checks that no moment is missing. `healed` is the moment of the last fault and the store's
    /// now then, and `ended` when the schedules were deleted.
    pub(crate) fn missing(
        &self,
        healed: (Duration, UnixMillis),
        ended: Duration,
    ) -> Vec<(Violation, String)> {
        let mut broken = Vec::new();
        let is_cut = ended >= healed.0 + MADE_UP_WITHIN;
        for (number, stretch) in self.stretches.iter().enumerate() {
            let of_stretch = self.planned.values().filter(|one| {
                one.stretch == number && !one.is_withdrawn && one.counts_since.is_some()
            });
            let mut all: Vec<_> = of_stretch.collect();
            all.sort_by_key(|one| one.moment);
            let (mut through, mut last) = (stretch.from, Duration::ZERO);
            let name = &stretch.key.1;
            for one in all {
                last = last.max(one.counts_since.unwrap_or_default());
                let expected = after(through, stretch.step_ms);
                if one.moment > expected {
                    broken.push((Violation::MomentMissing, format!("{name}: {expected}")));
                } else if one.moment < expected && self.forgotten.is_empty() {
                    broken.push((Violation::MissedMiscounted, format!("{name}: {}", one.moment)));
                }
                let end = one.moment.0 + stretch.step_ms * one.missed as i64;
                through = through.max(UnixMillis(end));
            }
            let next = after(through, stretch.step_ms);
            let makes_up = is_cut && stretch.misfire == MisfireRule::All && last + MAKES_UP > ended;
            if stretch.is_last && next <= healed.1 && !makes_up {
                broken.push((Violation::MomentMissing, format!("{name}: {next} and later")));
            }
        }
        broken
    }
}

impl Recurring {
    fn step_of(&self, moments: u64) -> i64 {
        self.step_ms * moments as i64
    }
}
