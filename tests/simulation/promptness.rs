//! How late a call may be, by an account of the instances: which of them ran.
//!
//! The rule applies to schedules without faults of the store. A call may be late by a poll. If an
//! instance dies, stands still or stops, its lanes are called [`AFTER_DEATH`] later at the latest.
//! If no running instance knows a service, its tasks wait for one.

use std::time::Duration;

use delayd::model::task::Destination;

use crate::history::{Event, History, LifeId, What};
use crate::plan::{Mishap, Plan};

/// How late a call may be without faults: a poll and the latencies.
const PROMPT: Duration = Duration::from_millis(1_200);
/// How late a call may be after the death of the instance that looked at its lane: docs/adr/0022.
const AFTER_DEATH: Duration = Duration::from_millis(3_500);
/// The time between the turns of two instances at one lane.
const TURN: Duration = Duration::from_secs(2);

/// A time during which an instance ran. It ends with a death, a stop, or a pause.
#[derive(Debug)]
struct Run {
    life: LifeId,
    instance: usize,
    from: Duration,
    to: Duration,
}

/// What may delay calls in a schedule.
#[derive(Debug)]
pub(crate) struct Promptness<'a> {
    plan: &'a Plan,
    runs: Vec<Run>,
}

impl<'a> Promptness<'a> {
    pub(crate) fn of(plan: &'a Plan, history: &History) -> Self {
        let mut of = Self { plan, runs: Vec::new() };
        history.events.iter().for_each(|event| of.take(event));
        of
    }

    fn take(&mut self, event: &Event) {
        match &event.what {
            What::Started { life, instance } => self.begin(*life, *instance, event.at),
            What::Crashed { life } | What::Stops { life } => {
                self.end(*life, event.at);
            }
            What::Paused { life, span } => {
                let instance = self.end(*life, event.at);
                self.begin(*life, instance, event.at + *span);
            }
            _ => {}
        }
    }

    fn begin(&mut self, life: LifeId, instance: usize, from: Duration) {
        self.runs.push(Run { life, instance, from, to: Duration::MAX });
    }

    fn end(&mut self, life: LifeId, at: Duration) -> usize {
        let run = self.runs.iter_mut().rfind(|run| run.life == life).expect("the life has begun");
        run.to = run.to.min(at);
        run.instance
    }

    /// Whether the plan has no fault that may delay a call for longer than this account knows.
    fn applies(&self) -> bool {
        let Plan { settings, store, .. } = self.plan;
        let is_known =
            |(_, mishap): &(Duration, Mishap)| !matches!(mishap, Mishap::ClockJump { .. });
        settings.concurrency >= 64
            && settings.concurrency_per_service >= 32
            && store.share == 0
            && store.latency_ms <= 5
            && self.plan.bad_calls == 0
            && self.plan.pauses.is_empty()
            && self.plan.outages.is_empty()
            && self.plan.jumps.is_empty()
            && self.plan.instances.iter().all(|(_, mishaps)| mishaps.iter().all(is_known))
    }

    /// Whether a call that `by` began at `at`, for a task that had been due for `late`, came too
    /// late.
    pub(crate) fn is_late(
        &self,
        at: Duration,
        late: Duration,
        by: LifeId,
        destination: &Destination,
    ) -> bool {
        if late <= PROMPT || !self.applies() {
            return false;
        }
        let due = at.saturating_sub(late);
        let knows = |run: &&Run| !self.plan.lacks(run.instance, destination.as_str());
        let mut from = due;
        // Each excuse moves the moment that counts as due. An excuse may begin within another one.
        loop {
            let before = from;
            for run in &self.runs {
                // Its lanes wait until the others know that it is gone.
                let gone = run.to.saturating_add(AFTER_DEATH) - PROMPT;
                if run.to <= from + PROMPT && from < gone {
                    from = gone;
                }
            }
            let mut knowing = self.runs.iter().filter(knows);
            if !knowing.any(|run| run.from <= from && from < run.to) {
                let next = self.runs.iter().filter(knows).map(|run| run.from);
                from = next.filter(|begins| *begins > from).min().unwrap_or(Duration::MAX);
            }
            // The caller itself stood still between its claim and the call.
            let resumed = self.runs.iter().filter(|run| run.life == by && run.from <= at);
            from = resumed.map(|run| run.from).filter(|begins| *begins > due).fold(from, Ord::max);
            if from == before {
                break;
            }
        }
        let is_known_to_all = (0..self.plan.instances.len())
            .all(|instance| !self.plan.lacks(instance, destination.as_str()));
        // The first turn finds the lane overdue. Perhaps only the last one is that of an instance
        // that knows the service.
        let further_turns = match is_known_to_all {
            true => Duration::ZERO,
            false => TURN * (self.plan.instances.len() as u32).saturating_sub(2),
        };
        let allowed = match self.plan.ailment.is_some() || !is_known_to_all {
            true => AFTER_DEATH + further_turns,
            false => PROMPT,
        };
        at > from.saturating_add(allowed)
    }
}
