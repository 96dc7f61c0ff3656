//! Timeouts of a connection: what it waits for, and since when.
//!
//! A connection holds a slot, a file descriptor and unread answers, so its caller's time is
//! limited:
//!
//! | it waits for | timeout | then |
//! |---|---|---|
//! | a request's head (at first: since it opened) | [`IoTimeouts::head`] | it is cut off |
//! | the socket to accept the next 16 KiB of an answer | [`IoTimeouts::answer`] | it is cut off |
//! | the next request | [`IoTimeouts::idle`]; `head` if others wait for a slot | it is shut down |
//!
//! After a shutdown, answers in progress are still written. The request's deadline bounds its body
//! and its handler; they are no concern of this file.
//!
//! Events only record times. One timer per connection ([`IoActivity::overdue`]) checks them when
//! the earliest deadline can have passed. A busy connection wakes it once in ten seconds, and no
//! request needs a timer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// How much of an answer the socket must accept to restart the timeout. Without this, one byte now
/// and then would keep a connection open for days.
const STEP: usize = 16 * 1024;

/// How long a connection may wait for its caller.
#[derive(Clone, Copy, Debug)]
pub struct IoTimeouts {
    /// For a request's head.
    pub head: Duration,
    /// For each 16 KiB of an answer.
    pub answer: Duration,
    /// For the next request.
    pub idle: Duration,
}

impl Default for IoTimeouts {
    fn default() -> Self {
        // Longer than the idle timeout of most clients' pools. The client then closes first, and no
        // request meets a closed connection.
        let idle = Duration::from_secs(75);
        Self { head: Duration::from_secs(10), answer: Duration::from_secs(10), idle }
    }
}

/// Which timeout has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedTimeout {
    /// For a request's head.
    Head,
    /// For the socket.
    Answer,
    /// For the next request.
    Idle,
}

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct IoActivity {
    timeouts: IoTimeouts,
    moments: Mutex<Moments>,
    /// Notified when a head is complete.
    asked: Notify,
}

#[derive(Debug)]
struct Moments {
    /// The number of requests in their handlers.
    running: usize,
    /// Since when there has been no request.
    idle: Instant,
    /// Since when a head has been arriving.
    head: Option<Instant>,
    /// No byte of the head has arrived, as on a new connection.
    is_silent: bool,
    /// Since when the socket has accepted less than one step.
    blocked: Option<Instant>,
    taken: usize,
}

impl IoActivity {
    pub(crate) fn new(timeouts: IoTimeouts) -> Self {
        let now = Instant::now();
        let moments = Moments {
            running: 0,
            idle: now,
            // A caller that sends nothing at all is late with its first head.
            head: Some(now),
            is_silent: true,
            blocked: None,
            taken: 0,
        };
        Self { timeouts, moments: Mutex::new(moments), asked: Notify::new() }
    }

    fn moments(&self) -> MutexGuard<'_, Moments> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that bytes arrived.
    pub(crate) fn came(&self) {
        let mut moments = self.moments();
        moments.is_silent = false;
        if moments.running == 0 && moments.head.is_none() {
            moments.head = Some(Instant::now());
        }
    }

    /// Records that the socket accepts no more bytes for now.
    pub(crate) fn blocked(&self) {
        self.moments().blocked.get_or_insert_with(Instant::now);
    }

    /// Records that the socket accepted bytes.
    pub(crate) fn took(&self, bytes: usize) {
        let mut moments = self.moments();
        moments.taken = moments.taken.saturating_add(bytes);
        if moments.taken >= STEP {
            (moments.taken, moments.blocked) = (0, None);
        }
    }

    /// Records that the socket accepted everything.
    pub(crate) fn flushed(&self) {
        let mut moments = self.moments();
        (moments.taken, moments.blocked) = (0, None);
    }

    /// Records a complete head. The request runs until the result is dropped.
    pub(crate) fn asked(self: &Arc<Self>) -> Running {
        let mut moments = self.moments();
        moments.running += 1;
        moments.head = None;
        drop(moments);
        self.asked.notify_waiters();
        Running(self.clone())
    }

    /// Returns when no head is partly read. [`Self::overdue`] bounds how long that takes.
    pub(crate) async fn no_part_of_a_head(&self) {
        loop {
            // Created before the check, so that a head that completes in between is not missed.
            let asked = self.asked.notified();
            if !self.moments().has_part_of_a_head() {
                return;
            }
            asked.await;
        }
    }

    /// Returns when a timeout has passed.
    pub(crate) async fn overdue(&self, slots: &Semaphore) -> PassedTimeout {
        // A wait may begin at any moment, so the timer runs at least this often.
        let shortest = self.timeouts.head.min(self.timeouts.answer).min(self.timeouts.idle);
        loop {
            let (deadline, why) =
                self.moments().deadline(&self.timeouts, slots.available_permits() == 0);
            let now = Instant::now();
            if deadline <= now {
                return why;
            }
            tokio::time::sleep_until(deadline.min(now + shortest)).await;
        }
    }
}

impl Moments {
    fn has_part_of_a_head(&self) -> bool {
        self.head.is_some() && !self.is_silent
    }

    /// The earliest deadline of everything the connection waits for.
    fn deadline(&self, timeouts: &IoTimeouts, is_crowded: bool) -> (Instant, PassedTimeout) {
        if let Some(since) = self.blocked {
            return (since + timeouts.answer, PassedTimeout::Answer);
        }
        if self.running > 0 {
            // The caller is not late with anything: check again soon.
            return (Instant::now() + timeouts.head, PassedTimeout::Head);
        }
        match self.head {
            Some(since) => (since + timeouts.head, PassedTimeout::Head),
            None => (
                self.idle
                    + if is_crowded { timeouts.head.min(timeouts.idle) } else { timeouts.idle },
                PassedTimeout::Idle,
            ),
        }
    }
}

/// A request in its handler.
#[derive(Debug)]
pub(crate) struct Running(Arc<IoActivity>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut moments = self.0.moments();
        moments.running -= 1;
        moments.idle = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Activity with the default timeouts: ten seconds for heads and answers, 75 for idleness. Free
    /// slots.
    fn fresh() -> (Arc<IoActivity>, Semaphore) {
        (Arc::new(IoActivity::new(IoTimeouts::default())), Semaphore::new(1))
    }

    /// Waits for a timeout, and returns which one and after how many seconds.
    async fn overdue(activity: &IoActivity, slots: &Semaphore) -> (PassedTimeout, u64) {
        let started = Instant::now();
        let why = activity.overdue(slots).await;
        (why, (started.elapsed() + SECOND / 2).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_drips_a_head_is_overdue_in_time() {
        let (activity, slots) = fresh();
        assert_eq!(overdue(&activity, &slots).await, (PassedTimeout::Head, 10));
        let (activity, slots) = fresh();
        drop(activity.asked());
        tokio::time::advance(20 * SECOND).await;
        for _ in 0..9 {
            activity.came();
            tokio::time::advance(SECOND).await;
        }
        assert_eq!(overdue(&activity, &slots).await, (PassedTimeout::Head, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_has_longer_unless_others_wait_for_its_slot() {
        let (activity, slots) = fresh();
        drop(activity.asked());
        assert_eq!(overdue(&activity, &slots).await, (PassedTimeout::Idle, 75));
        let (activity, slots) = fresh();
        drop(activity.asked());
        slots.forget_permits(1);
        assert_eq!(overdue(&activity, &slots).await, (PassedTimeout::Idle, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_request_is_not_overdue() {
        let (activity, slots) = fresh();
        let running = activity.asked();
        activity.came();
        assert!(tokio::time::timeout(1000 * SECOND, activity.overdue(&slots)).await.is_err());
        drop(running);
        assert_eq!(overdue(&activity, &slots).await, (PassedTimeout::Idle, 75));
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_a_byte_now_and_then_is_overdue() {
        let (activity, slots) = fresh();
        drop(activity.asked());
        for _ in 0..9 {
            activity.blocked();
            tokio::time::advance(SECOND).await;
            activity.took(1);
        }
        assert_eq!(overdue(&activity, &slots).await, (PassedTimeout::Answer, 1));
        activity.took(STEP);
        activity.blocked();
        assert_eq!(overdue(&activity, &slots).await, (PassedTimeout::Answer, 10));
        activity.flushed();
        assert_eq!(overdue(&activity, &slots).await.0, PassedTimeout::Idle);
    }
}
