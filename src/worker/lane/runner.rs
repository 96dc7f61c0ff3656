//! Performs the actions of a lane's state machine, and reports what came of each.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::nudge::Nudge;
use super::state::{Action, Event, Granted, LaneState, WokenBy};
use crate::callback::CallClient;
use crate::limits::Availability;
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::{self, Delivery};
use crate::worker::call;
use crate::worker::claim::{Ask, ClaimResult, ClaimedBatch, Claimer};
use crate::worker::pages::News;
use crate::worker::shared::Shared;

/// A lane's task does not end while something is due within this time.
pub(in crate::worker) const COMING: Duration = Duration::from_secs(5);
/// How often a lane whose server is away looks whether another server has it now.
const FIND_SERVER: Duration = Duration::from_secs(2);

/// Works the lane until it is idle, its topic is paused, or the instance stops. Then gives its lock
/// back.
pub(in crate::worker) async fn run(
    shared: Arc<Shared<impl Delivery, impl CallClient>>,
    lane: Lane,
    nudge: Arc<Nudge>,
) {
    let mut runner = Runner::new(&shared, &lane, &nudge);
    let (mut state, mut action) = LaneState::start();
    while action != Action::End {
        let event = runner.perform(action).await;
        (state, action) = state.step(event);
    }
    runner.claimer.release_lock(&shared).await;
}

struct Runner<'a, S, C> {
    shared: &'a Arc<Shared<S, C>>,
    lane: &'a Lane,
    /// Notified when the supervisor knows of work before the moment that the lane sleeps until.
    nudge: &'a Nudge,
    /// Notified when it is the lane's turn in one of the wait queues for permits.
    permit_free: Arc<Notify>,
    claimer: Claimer,
    last_work: Instant,
    last_warning: UnixMillis,
}

/// What ends a wait. A stop of the instance always does.
#[derive(Default)]
struct Until {
    /// This server answers settles again.
    recovered: Option<u64>,
    /// The store's clock has reached this moment.
    due: Option<UnixMillis>,
    /// The lane is idle from this moment on, or what is known of it is old.
    idle: Option<Instant>,
    /// The supervisor or a wait queue for permits wakes the lane.
    woken: bool,
    /// So much time has passed.
    time: Option<Duration>,
}

/// What ended a wait.
enum Waited {
    Stopping,
    Recovered,
    Due,
    Idle,
    Nudged,
    PermitFree,
    Time,
}

impl<'a, S: Delivery, C: CallClient> Runner<'a, S, C> {
    fn new(shared: &'a Arc<Shared<S, C>>, lane: &'a Lane, nudge: &'a Nudge) -> Self {
        let permit_free = Arc::<Notify>::default();
        Self {
            shared,
            lane,
            nudge,
            claimer: Claimer::new(lane.clone(), permit_free.clone()),
            permit_free,
            last_work: Instant::now(),
            last_warning: UnixMillis::default(),
        }
    }

    async fn perform(&mut self, action: Action) -> Event {
        match action {
            Action::Claim => self.claim(Ask::Tasks).await,
            Action::YieldAndClaim => {
                if !self.claimer.due().is_empty() {
                    tokio::task::yield_now().await;
                }
                self.claim(Ask::Tasks).await
            }
            Action::GiveLockBack => self.claim(Ask::Nothing).await,
            Action::CheckPermits => match self.claimer.check_permits(self.shared) {
                Availability::Now => Event::PermitFree,
                Availability::Later(retry_in) => Event::NoPermit { retry_in },
            },
            Action::Sleep { retry_in } => self.sleep(retry_in).await,
            Action::Rest(time) => self.rest(Until { time: Some(time), ..Until::default() }).await,
            Action::AwaitServer(server) => {
                let until =
                    Until { recovered: Some(server), time: Some(FIND_SERVER), ..Until::default() };
                self.rest(until).await
            }
            Action::End => Event::Stopped,
        }
    }

    async fn claim(&mut self, ask: Ask) -> Event {
        self.claimer.take_in(self.nudge.busy());
        // The supervisor's first poll after the pause starts the lane again.
        if self.shared.stopping.is_cancelled() || self.shared.is_paused(&self.lane.topic) {
            return Event::Stopped;
        }
        match self.claimer.claim(self.shared, ask).await {
            Ok(ClaimResult::Granted(batch)) => Event::Granted(self.hand_out(batch)),
            Ok(ClaimResult::Refused { retry_in }) => Event::Refused { retry_in },
            Ok(ClaimResult::ServerAway { server }) => Event::ServerAway { server },
            Err(error) => {
                log(self.lane, &error);
                Event::Failed
            }
        }
    }

    fn hand_out(&mut self, batch: ClaimedBatch) -> Granted {
        let ClaimedBatch { tasks, receipt, since, mut permits, claim } = batch;
        if !tasks.is_empty() {
            self.last_work = Instant::now();
        }
        let lateness = self.claimer.lateness(self.shared, claim);
        for task in tasks {
            let late = lateness(&task);
            call::start(self.shared, self.lane, task, late, &receipt, since, &mut permits);
        }
        drop(lateness);
        self.claimer.handed_out(claim.answered);
        self.warn_of_unknown(claim.answered);
        if self.claimer.is_paging() {
            return Granted::ToBeContinued;
        }
        let next = self.claimer.next();
        let is_coming = next.is_some_and(|next| next <= self.shared.time.store_now() + COMING);
        let is_idle = self.idle_left().is_zero() && !is_coming;
        if self.claimer.due().is_empty() && (is_idle || !self.is_open()) {
            return Granted::Idle;
        }
        Granted::Seen { keeps_lock: self.claimer.keeps_lock() }
    }

    /// Logs the due destinations that are not configured. Their tasks wait.
    fn warn_of_unknown(&mut self, now: UnixMillis) {
        const EVERY: Duration = Duration::from_secs(60);
        if now.since(self.last_warning) < EVERY {
            return;
        }
        let (services, lane) = (&self.shared.parts.services, self.lane);
        for sn in self.claimer.due().unknown() {
            if services.get(sn.as_str()).is_none() {
                self.last_warning = now;
                tracing::warn!(
                    %sn, %lane,
                    "Tasks for {sn} are due but neither [services] nor callback.allow_hosts names \
                     it; they wait"
                );
            }
        }
    }

    /// Whether this instance looks at the lane each second.
    fn is_open(&self) -> bool {
        self.shared.ownership.is_open(self.lane)
    }

    /// Whether only held destinations are due, and the lane has another owner. What operators hold
    /// is held for all instances.
    fn leaves_held(&self) -> bool {
        let Shared { ownership, parts, .. } = &**self.shared;
        let due = self.claimer.due();
        let leaves = ownership.is_shared()
            && !due.is_empty()
            && due.names().all(|destination| parts.limits.is_held(destination))
            && !ownership.owns(self.lane);
        if leaves {
            ownership.withdraw(self.lane);
        }
        leaves
    }

    fn idle_left(&self) -> Duration {
        self.shared.params.idle_stop.saturating_sub(self.last_work.elapsed())
    }

    async fn sleep(&mut self, retry_in: Option<Duration>) -> Event {
        if self.leaves_held() {
            return Event::LeftToOthers;
        }
        let next = self.claimer.next();
        self.nudge.sleeps_towards(next);
        if self.nudge.is_pending() {
            return Event::Woken(WokenBy::Claim);
        }
        let has_due = !self.claimer.due().is_empty();
        let idle = (!has_due || self.shared.ownership.is_shared())
            .then(|| Instant::now() + if has_due { COMING } else { self.idle_left().max(COMING) });
        let until = Until { due: next, idle, woken: true, time: retry_in, recovered: None };
        match self.wait(until).await {
            Waited::Stopping => Event::Stopped,
            Waited::PermitFree | Waited::Time => Event::Woken(WokenBy::Permit),
            // Its owner has it, and nothing that is due could be called here.
            Waited::Due | Waited::Idle if !self.is_open() => Event::LeftToOthers,
            Waited::Idle => {
                self.claimer.take_in(News { hinted: None, polled: true });
                Event::Woken(WokenBy::Claim)
            }
            Waited::Due | Waited::Nudged | Waited::Recovered => Event::Woken(WokenBy::Claim),
        }
    }

    async fn rest(&self, until: Until) -> Event {
        match self.wait(until).await {
            Waited::Stopping => Event::Stopped,
            _ => Event::Rested,
        }
    }

    /// The only `select!` of a lane. Otherwise it only waits for the store's answers.
    async fn wait(&self, until: Until) -> Waited {
        let Self { shared, nudge, permit_free, .. } = self;
        let Until { recovered, due, idle, woken, time } = until;
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => Waited::Stopping,
            () = shared.settler.recovered(recovered.unwrap_or_default()),
                if recovered.is_some() => Waited::Recovered,
            () = shared.time.sleep_until(due.unwrap_or_default()),
                if due.is_some() => Waited::Due,
            () = tokio::time::sleep_until(idle.unwrap_or(self.last_work)),
                if idle.is_some() => Waited::Idle,
            () = nudge.nudged(), if woken => Waited::Nudged,
            () = permit_free.notified(), if woken => Waited::PermitFree,
            () = tokio::time::sleep(time.unwrap_or_default()),
                if time.is_some() => Waited::Time,
        }
    }
}

fn log(lane: &Lane, error: &store::Error) {
    match error {
        store::Error::Corrupt(_) => {
            tracing::error!(%lane, %error, "Lane {lane} cannot be worked; trying on")
        }
        // The store itself logs when it becomes unavailable, and when it is back.
        _ => tracing::debug!(%lane, %error, "Could not claim; trying again"),
    }
}
