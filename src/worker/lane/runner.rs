//! Does what the lane's state asks for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::nudge::Nudge;
use super::state::{Action, Event, Granted, State, Wake};
use crate::callback::Caller;
use crate::clock::UnixMillis;
use crate::store::{self, Delivery, Grant, Outlook};
use crate::task::Lane;
use crate::worker::call;
use crate::worker::claim::{self, Claimer, Room, Slots, Taken};
use crate::worker::shared::Shared;

/// A due moment this near is work that is coming: the lane's task does not end before it.
pub(in crate::worker) const COMING: Duration = Duration::from_secs(5);

/// Works the lane until it has been idle for long enough, or the instance stops. Its lock is given
/// back then.
pub(in crate::worker) async fn run(
    shared: Arc<Shared<impl Delivery, impl Caller>>,
    lane: Lane,
    nudge: Arc<Nudge>,
) {
    let mut runner = Runner::new(&shared, &lane, &nudge);
    let (mut state, mut action) = State::start();
    while action != Action::End {
        let event = runner.perform(action).await;
        (state, action) = state.step(event);
    }
    runner.end().await;
}

struct Runner<'a, S, C> {
    shared: &'a Arc<Shared<S, C>>,
    lane: &'a Lane,
    /// The supervisor knows of work that is due earlier than what the lane sleeps towards.
    nudge: &'a Nudge,
    /// It is the lane's turn in one of the wait queues for permits.
    permit_free: Arc<Notify>,
    claimer: Claimer,
    outlook: Outlook,
    last_work: Instant,
    last_warning: UnixMillis,
}

/// What ends a wait. Stopping always does.
#[derive(Default)]
struct Until {
    /// This server answers settles again.
    recovered: Option<u64>,
    /// The store's clock has reached this moment.
    due: Option<UnixMillis>,
    /// The lane has been idle for long.
    idle: Option<Instant>,
    /// Somebody wakes the lane: the supervisor, or the queues in which it waits for permits.
    woken: bool,
    /// So much time has passed.
    time: Option<Duration>,
}

/// What a wait has ended with.
enum Waited {
    Stopping,
    Recovered,
    Due,
    Idle,
    Nudged,
    PermitFree,
    Time,
}

impl<'a, S: Delivery, C: Caller> Runner<'a, S, C> {
    fn new(shared: &'a Arc<Shared<S, C>>, lane: &'a Lane, nudge: &'a Nudge) -> Self {
        Self {
            shared,
            lane,
            nudge,
            permit_free: Arc::default(),
            claimer: Claimer::new(lane.clone()),
            outlook: Outlook::default(),
            last_work: Instant::now(),
            last_warning: UnixMillis::default(),
        }
    }

    async fn perform(&mut self, action: Action) -> Event {
        match action {
            Action::Claim => self.claim().await,
            Action::YieldAndClaim => {
                if !self.outlook.due.is_empty() {
                    tokio::task::yield_now().await;
                }
                self.claim().await
            }
            Action::GiveLockBack => {
                self.claimer.give_lock_back();
                self.claim().await
            }
            Action::CheckPermits => {
                match self.claimer.room(self.shared, &self.outlook.due, &self.permit_free) {
                    Room::Free => Event::PermitFree,
                    Room::None { wait } => Event::NoPermit { retry_in: wait },
                }
            }
            Action::Sleep { retry_in } => self.sleep(retry_in).await,
            Action::Rest(time) => {
                match self.wait(Until { time: Some(time), ..Until::default() }).await {
                    Waited::Stopping => Event::Stopped,
                    _ => Event::Rested,
                }
            }
            Action::End => Event::Stopped,
        }
    }

    async fn claim(&mut self) -> Event {
        // A nudge during a look of several steps may be about what the first ones passed by.
        if !self.claimer.is_looking() {
            self.nudge.busy();
        }
        let server = self.shared.parts.store.server_of(self.lane);
        if self.shared.settler.is_away(server) {
            self.claimer.step_aside();
            self.wait(Until { recovered: Some(server), ..Until::default() }).await;
        }
        // Only now: that wait may have been a long one. The first look after a pause brings the
        // lane back.
        if self.shared.stopping.is_cancelled() || self.shared.is_paused(&self.lane.topic) {
            return Event::Stopped;
        }
        match self.claimer.take(self.shared, &self.outlook.due).await {
            Ok(Taken::Granted { grant, slots, since }) => {
                Event::Granted(self.hand_out(grant, slots, since))
            }
            Ok(Taken::Refused(retry_in)) => Event::Refused { retry_in },
            Err(error) => {
                self.failed(&error);
                Event::Failed
            }
        }
    }

    fn hand_out(&mut self, grant: Grant, mut slots: Slots, since: Instant) -> Granted {
        if !grant.tasks.is_empty() {
            self.last_work = Instant::now();
        }
        for task in grant.tasks {
            call::start(self.shared, self.lane, task, &grant.receipt, since, &mut slots);
        }
        self.outlook = grant.outlook;
        claim::warn_of_unknown(
            self.shared,
            self.lane,
            &self.outlook.due,
            grant.now,
            &mut self.last_warning,
        );
        if self.claimer.is_looking() {
            return Granted::ToBeContinued;
        }
        let is_coming =
            self.outlook.next.is_some_and(|next| next <= self.shared.time.store_now() + COMING);
        if self.idle_left().is_zero() && !is_coming && self.outlook.due.is_empty() {
            return Granted::Idle;
        }
        Granted::Seen { keeps_lock: self.claimer.keeps_lock() }
    }

    fn failed(&mut self, error: &store::Error) {
        let lane = self.lane;
        match error {
            store::Error::Corrupt(_) => {
                tracing::error!(%lane, %error, "Lane {lane} cannot be worked; trying on")
            }
            // The store says itself when it goes and when it comes back.
            _ => tracing::debug!(%lane, %error, "Could not claim; trying again"),
        }
        // The next claim only looks. A reservation that waits for a store in trouble would keep
        // slots from lanes that are well.
        self.outlook = Outlook::default();
        self.claimer.forget();
    }

    fn idle_left(&self) -> Duration {
        self.shared.params.idle_stop.saturating_sub(self.last_work.elapsed())
    }

    /// A permit that came free is no reason to claim if nobody waits for it, or another took it.
    async fn sleep(&mut self, retry_in: Option<Duration>) -> Event {
        self.nudge.sleeps_towards(self.outlook.next);
        if self.nudge.is_pending() {
            return Event::Woken(Wake::Claim);
        }
        let idle =
            self.outlook.due.is_empty().then(|| Instant::now() + self.idle_left().max(COMING));
        let until =
            Until { due: self.outlook.next, idle, woken: true, time: retry_in, recovered: None };
        match self.wait(until).await {
            Waited::Stopping => Event::Stopped,
            Waited::PermitFree | Waited::Time => Event::Woken(Wake::Permit),
            Waited::Due | Waited::Idle | Waited::Nudged | Waited::Recovered => {
                Event::Woken(Wake::Claim)
            }
        }
    }

    /// The only place where a lane waits, but for the store's answers.
    async fn wait(&self, until: Until) -> Waited {
        let Self { shared, nudge, permit_free, .. } = self;
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => Waited::Stopping,
            () = shared.settler.recovered(until.recovered.unwrap_or_default()), if until.recovered.is_some() => {
                Waited::Recovered
            }
            () = shared.time.sleep_until(until.due.unwrap_or_default()), if until.due.is_some() => Waited::Due,
            () = tokio::time::sleep_until(until.idle.unwrap_or(self.last_work)), if until.idle.is_some() => Waited::Idle,
            () = nudge.nudged(), if until.woken => Waited::Nudged,
            () = permit_free.notified(), if until.woken => Waited::PermitFree,
            () = tokio::time::sleep(until.time.unwrap_or_default()), if until.time.is_some() => Waited::Time,
        }
    }

    /// Gives the lane's lock back.
    async fn end(mut self) {
        if self.claimer.keeps_lock() {
            self.claimer.give_lock_back();
            // It lasts for two seconds by itself.
            let _ = self.claimer.take(self.shared, &[]).await;
        }
    }
}
