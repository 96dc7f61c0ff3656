//! One task in flight: checks its lease, calls its destination, decides the outcome, settles.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use delayd_wire::Way;
use tokio::time::Instant;

use super::in_flight::{HeldLease, HeldTask, MARGIN};
use super::params::NotedAttempts;
use super::permits::{CallPermits, Reserved};
use super::settler::LeaseEnding;
use super::shared::Shared;
use crate::callback::{Answer, Call, CallClient, Excerpt, Fault, Service, target};
use crate::metrics::{AttemptOutcome, ServiceMetrics};
use crate::model::clock::UnixMillis;
use crate::model::culprit::Culprit;
use crate::model::lateness::Lateness;
use crate::model::task::{Lane, Receipt, TopicPolicy};
use crate::model::trace::TraceId;
use crate::outcome;
use crate::store::{Asker, AttemptNote, Delivery, LeasedTask, Moment, Settled, Transition};
use crate::trace::{AttemptEnd, Traced, TracedAttempt};

/// The breaker counts a call as failed when it runs for longer than its timeout plus this. Usually
/// the timeout ends the call first.
const OVERDUE: Duration = Duration::from_secs(1);

/// Starts the call of a claimed task, unless this instance is calling it already.
pub(super) fn start(
    shared: &Arc<Shared<impl Delivery, impl CallClient>>,
    lane: &Lane,
    task: LeasedTask,
    lateness: Lateness,
    receipt: &Receipt,
    since: Instant,
    permits: &mut Reserved,
) {
    let lease = HeldLease {
        receipt: receipt.clone(),
        until: since + shared.params.lease,
        attempt: task.attempt,
    };
    let Some(held) = shared.in_flight.take(lane, task.id, lease) else {
        tracing::debug!(
            task.id = %task.id, %lane,
            "Task {} is still in flight here; its call goes on", task.id
        );
        return;
    };
    let Some(permits) = permits.split_one(&task.destination) else {
        // The task was rescheduled to another destination, for which no permit is left.
        return shared.settler.send(LeaseEnding::of(lane.clone(), held, Transition::Release));
    };
    let (shared, lane) = (shared.clone(), lane.clone());
    let calls = shared.calls.clone();
    let mut flight = Flight { shared, lane, task, lateness, held, permits, is_refused: false };
    calls.spawn(async move {
        if let Some(transition) = flight.run().await {
            flight.settle(transition);
        }
    });
}

/// A task in flight. `run` borrows it: a future that owned it would hold it twice, and thousands
/// are in flight at once.
struct Flight<S, C> {
    shared: Arc<Shared<S, C>>,
    lane: Lane,
    task: LeasedTask,
    /// How late the task was handed out.
    lateness: Lateness,
    held: HeldTask,
    permits: CallPermits,
    /// Whether the receiver refused the task for good.
    is_refused: bool,
}

impl<S: Delivery, C: CallClient> Flight<S, C> {
    /// Makes the call and returns how the lease ends. `None`: the end of the grace period cut the
    /// call off, and the lease and the attempt stay as they are.
    async fn run(&mut self) -> Option<Transition> {
        let policy = self.shared.policy_of(&self.lane.topic);
        let own = self.task.options.timeout.or(policy.timeout);
        let timeout = own.map_or(self.shared.params.timeout, |span| span.0);
        let Some(service) = self.shared.parts.services.get(self.task.destination.as_str()) else {
            return Some(Transition::Release);
        };
        let Some(store) = self.task.options.origin.or_else(|| self.shared.store_id()) else {
            return Some(Transition::Release);
        };
        if service.oauth().is_some_and(|oauth| oauth.no_token().is_some()) {
            // The token was given up after the claim.
            return Some(Transition::Release);
        }
        let webhook_id = self.task.options.webhook_id(store, &self.lane.topic, self.task.id);
        let claimed = Instant::now();
        if self.shared.stopping.is_cancelled() || !self.lease_covers(timeout).await {
            return Some(Transition::Release);
        }
        self.permits.begin(timeout + OVERDUE);
        let shared = self.shared.clone();
        let (began, started, excerpt) =
            (Instant::now(), self.shared.time.store_now(), Excerpt::default());
        let metrics = service.metrics(&self.shared.parts.metrics.callbacks);
        let trace = self.shared.parts.tracer.attempt(Traced {
            store,
            id: self.task.id,
            options: &self.task.options,
            delay: self.task.due.since(self.task.created),
        });
        let answer = tokio::select! {
            biased;
            answer = self.call(&service, &webhook_id, &policy, timeout, &trace, &excerpt) => {
                Some(answer)
            }
            () = shared.settler.finished() => None,
        };
        // A task that is given back is observed with its next call, which is its first attempt.
        if answer != Some(Answer::NoToken) {
            self.observe_lateness(started, began.duration_since(claimed), &policy, metrics);
        }
        let answer = answer?.with_retry_after_of_at_most(shared.parts.limits.retry_after_max());
        let permit = &mut self.permits.destination;
        match &answer {
            // No attempt: nothing is counted or noted.
            Answer::NoToken => return Some(Transition::Release),
            Answer::Failed { fault: Fault::Destination, outcome, .. } => permit.failed(outcome),
            Answer::Failed { fault: Fault::Here, .. } => {}
            // A destination that responds is healthy, even if it rejects this task.
            Answer::Delivered { .. }
            | Answer::Accepted { .. }
            | Answer::Failed { .. }
            | Answer::Final { .. } => {
                permit.succeeded();
            }
        }
        if let Answer::Failed { hold: Some(hold), .. } = &answer {
            shared.parts.limits.hold(&self.task.destination, *hold);
        }
        let took = began.elapsed();
        metrics.attempted(counted_as(&answer), took);
        if let Answer::Delivered { outcome, ambiguous: Some(field) } = &answer {
            metrics.was_ambiguous();
            shared.ambiguity.warn(&self.task.destination, outcome, field);
        }
        self.is_refused = matches!(answer, Answer::Final { .. });
        let transition = self.conclude(&policy, &answer, trace.trace_id);
        let wait = match &transition {
            Transition::Retry { due: Moment::After(wait), .. } => Some(*wait),
            _ => None,
        };
        self.note(&answer, started, (took, wait), excerpt);
        self.end_span(trace, &answer);
        Some(transition)
    }

    /// Retries are as late as their backoff says, so only first attempts are observed.
    /// The store took `extending` to extend the lease; nothing, if that was long enough.
    fn observe_lateness(
        &self,
        now: UnixMillis,
        extending: Duration,
        policy: &TopicPolicy,
        service: &ServiceMetrics,
    ) {
        if self.held.lease().attempt == 1 {
            let mut lateness = self.lateness;
            // The rest is the time between the claim's answer and the call.
            let rest = now.since(self.task.due).saturating_sub(lateness.total());
            let extending = extending.min(rest);
            lateness.add(Culprit::Store, extending.as_millis() as i64);
            lateness.add(Culprit::Delayd, (rest - extending).as_millis() as i64);
            let metrics = &self.shared.parts.metrics.lateness;
            metrics.observe(Way::Push, &lateness, policy.lateness_objective);
            // What was due before the start (`Unknown`) was late because of the start.
            if lateness.part(Culprit::Unknown).is_zero() {
                service.began(lateness.total().saturating_sub(lateness.part(Culprit::Operator)));
            }
            if let Some(occurrence) = &self.task.options.schedule {
                self.shared.parts.metrics.schedules.missed(occurrence.missed);
            }
        }
    }

    /// Makes the call. It takes the content out of the task, which does not need it any more.
    async fn call(
        &mut self,
        service: &Service,
        webhook_id: &str,
        policy: &TopicPolicy,
        timeout: Duration,
        trace: &TracedAttempt,
        excerpt: &Excerpt,
    ) -> Answer {
        let Some(target) = target(&self.task.content).ok().flatten() else {
            return Answer::Final { outcome: "the content names no sn and url".into() };
        };
        let lease = self.held.lease();
        let call = Call {
            service,
            url: &target.url,
            id: self.task.id,
            webhook_id,
            topic: &self.lane.topic,
            attempt: lease.attempt,
            due: self.task.due,
            occurrence: self.task.options.schedule.as_deref(),
            receipt: &lease.receipt,
            headers: &self.task.options.headers,
            timeout,
            final_statuses: policy.retry.final_statuses.as_deref(),
            excerpt,
            clock_ahead_ms: self.shared.time.signing_ahead_ms(),
            trace: trace.sent,
            called: trace.span.as_ref().map(|span| &span.called),
            body: std::mem::take(&mut self.task.content).into(),
        };
        self.shared.parts.client.call(&call).await
    }

    /// Whether the lease lasts longer than the call may take. If not, it is extended first; if the
    /// store refuses that, somebody else has the task.
    async fn lease_covers(&self, timeout: Duration) -> bool {
        let needed = timeout + MARGIN;
        loop {
            let lease = self.held.lease();
            if lease.until.saturating_duration_since(Instant::now()) > needed {
                return true;
            }
            let (since, span) = (Instant::now(), needed + self.shared.params.lease);
            match self
                .shared
                .parts
                .store
                .extend(Asker::Worker, &self.lane, self.task.id, &lease.receipt, span)
                .await
            {
                // Check again: the answer may have been slow, so that little of the lease is left.
                Ok(Settled::Done) => self.held.extended(since + span),
                Ok(Settled::Cancelled | Settled::Stale { .. } | Settled::Unknown) => return false,
                Err(error) => {
                    tracing::warn!(
                        task.id = %self.task.id, lane = %self.lane, %error,
                        "Could not extend a lease; the task is released"
                    );
                    return false;
                }
            }
        }
    }

    /// Queues a note of the attempt, if the settings ask for one. `wait` follows a failure.
    fn note(
        &self,
        answer: &Answer,
        started: UnixMillis,
        (took, wait): (Duration, Option<Duration>),
        excerpt: Excerpt,
    ) {
        let is_noted = match self.shared.params.noted {
            NotedAttempts::All => true,
            NotedAttempts::Failures => answer.is_failure(),
            NotedAttempts::Nothing => false,
        };
        if is_noted {
            self.shared.notes.take(AttemptNote {
                lane: self.lane.clone(),
                id: self.task.id,
                attempt: self.held.lease().attempt,
                started,
                took,
                wait,
                outcome: answer.outcome().to_owned(),
                answer: excerpt.into_text(),
            });
        }
    }

    /// Exports the span of the attempt, if it has one.
    fn end_span(&self, trace: TracedAttempt, answer: &Answer) {
        let Some(span) = trace.span else { return };
        let ended = match answer.is_failure() {
            true => AttemptEnd::Failed(answer.outcome().to_owned()),
            false => AttemptEnd::Succeeded,
        };
        let number = self.held.lease().attempt;
        self.shared.parts.tracer.ended(
            *span,
            (&self.lane.topic, self.task.id),
            (&self.task.destination, number),
            ended,
        );
    }

    fn conclude(&self, policy: &TopicPolicy, answer: &Answer, trace_id: TraceId) -> Transition {
        let policy = self.shared.params.policy.for_topic(policy).for_task(&self.task.options);
        let attempt = self.held.lease().attempt;
        let transition =
            outcome::of(&policy, self.shared.params.lease, attempt, answer, rand::random());
        let (id, topic) = (self.task.id, &self.lane.topic);
        match &transition {
            Transition::Delivered { outcome } => {
                tracing::debug!(
                    task.id = %id, %topic, attempt, outcome, %trace_id,
                    "Delivered task {id} on attempt {attempt}"
                );
            }
            Transition::Retry { due: Moment::After(after), outcome } => {
                tracing::info!(
                    task.id = %id, %topic, attempt, outcome, %trace_id,
                    retry_in_ms = after.as_millis() as u64,
                    "Attempt {attempt} of task {id} failed ({outcome}); it will be tried again"
                );
            }
            Transition::Dead { outcome } => {
                tracing::warn!(
                    task.id = %id, %topic, attempt, outcome, %trace_id,
                    "Task {id} is dead after attempt {attempt} ({outcome})"
                );
            }
            Transition::Keep { lease } => {
                tracing::debug!(
                    task.id = %id, %topic, attempt, lease_ms = lease.as_millis() as u64, %trace_id,
                    "The receiver of task {id} will acknowledge it later"
                );
            }
            Transition::Retry { .. } | Transition::Release | Transition::Moved => {}
        }
        transition
    }

    fn settle(self, transition: Transition) {
        if self.shared.cut_off.load(Ordering::Relaxed) {
            return;
        }
        let Self { shared, lane, held, permits, is_refused, .. } = self;
        // The permits are free before the settle is sent.
        drop(permits);
        let ending = LeaseEnding::of(lane, held, transition);
        shared.settler.send(if is_refused { ending.refused() } else { ending });
    }
}

fn counted_as(answer: &Answer) -> AttemptOutcome {
    match answer {
        Answer::Delivered { .. } => AttemptOutcome::Delivered,
        Answer::Accepted { .. } => AttemptOutcome::Accepted,
        Answer::Failed { fault: Fault::Destination, .. } => AttemptOutcome::ReceiverFailed,
        Answer::Failed { fault: Fault::Task, .. } => AttemptOutcome::Refused,
        Answer::Failed { fault: Fault::Here, .. } | Answer::NoToken => AttemptOutcome::NotCalled,
        Answer::Final { .. } => AttemptOutcome::Final,
    }
}
