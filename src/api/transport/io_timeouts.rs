//! Whether a connection gets anywhere: what it waits for, and since when.
//!
//! A connection costs a slot, a file descriptor and whatever it has not read yet. Its caller may
//! take time, but not for ever:
//!
//! | it waits for | until | then it is |
//! |---|---|---|
//! | the end of a request's head (the first one: from the opening) | [`IoTimeouts::head`] | cut off |
//! | the socket to take a step of what was answered | [`IoTimeouts::answer`] | cut off |
//! | a window for an HTTP/2 answer, though the socket is free | [`IoTimeouts::answer`] | closed once its other answers are out |
//! | another request | [`IoTimeouts::idle`]; `head`, while others wait for a slot | closed |
//!
//! A request's body and its handler are bounded by the edge's timeout, not here.
//!
//! The events only note moments. One sleeper per connection ([`IoActivity::overdue`]) looks at them when
//! the earliest possible deadline has come, so that a busy connection costs a wake-up in ten
//! seconds and no timer a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// How much of an answer must be taken for the wait to begin anew: else a byte now and then would
/// hold it for days.
pub(crate) const STEP: usize = 16 * 1024;

/// How long callers may take.
#[derive(Clone, Copy, Debug)]
pub struct IoTimeouts {
    /// For a request's head.
    pub head: Duration,
    /// For each 16 KiB of an answer.
    pub answer: Duration,
    /// For another request.
    pub idle: Duration,
}

impl Default for IoTimeouts {
    fn default() -> Self {
        // Longer than the idle times of most clients' pools: who closes first is not met by a
        // request on its way.
        let idle = Duration::from_secs(75);
        Self { head: Duration::from_secs(10), answer: Duration::from_secs(10), idle }
    }
}

/// What a connection took too long for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// A head.
    Head,
    /// The socket.
    Answer,
    /// An HTTP/2 stream.
    Stream,
    /// The next request.
    Idle,
}

/// What goes on on one connection.
#[derive(Debug)]
pub(crate) struct IoActivity {
    timeouts: IoTimeouts,
    moments: Mutex<Moments>,
    /// A head is complete.
    asked: Notify,
}

#[derive(Debug)]
struct Moments {
    /// Requests in their handlers.
    running: usize,
    /// HTTP/2: bytes come without a request, too.
    multiplexed: bool,
    /// Since when nothing was asked for.
    idle: Instant,
    /// Since when a head has been coming.
    head: Option<Instant>,
    /// Nothing has come of it yet, as on a connection just opened.
    is_silent: bool,
    /// Since when the socket has taken less than a step.
    blocked: Option<Instant>,
    taken: usize,
    /// Answers on HTTP/2 streams, and when each last got on.
    answers: HashMap<u64, Instant>,
    next_answer: u64,
}

impl IoActivity {
    pub(crate) fn new(timeouts: IoTimeouts) -> Self {
        let now = Instant::now();
        let moments = Moments {
            running: 0,
            multiplexed: false,
            idle: now,
            // Who says nothing at all is late with his first head.
            head: Some(now),
            is_silent: true,
            blocked: None,
            taken: 0,
            answers: HashMap::new(),
            next_answer: 0,
        };
        Self { timeouts, moments: Mutex::new(moments), asked: Notify::new() }
    }

    fn moments(&self) -> MutexGuard<'_, Moments> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes came.
    pub(crate) fn came(&self) {
        let mut moments = self.moments();
        moments.is_silent = false;
        if moments.running == 0 && !moments.multiplexed && moments.head.is_none() {
            moments.head = Some(Instant::now());
        }
    }

    /// The socket takes no more for now.
    pub(crate) fn blocked(&self) {
        self.moments().blocked.get_or_insert_with(Instant::now);
    }

    /// The socket took some.
    pub(crate) fn took(&self, bytes: usize) {
        let mut moments = self.moments();
        moments.taken = moments.taken.saturating_add(bytes);
        if moments.taken >= STEP {
            (moments.taken, moments.blocked) = (0, None);
        }
    }

    /// The socket took everything.
    pub(crate) fn flushed(&self) {
        let mut moments = self.moments();
        (moments.taken, moments.blocked) = (0, None);
    }

    /// A request's head is complete; its handler runs until the answer is dropped.
    pub(crate) fn asked(self: &Arc<Self>, multiplexed: bool) -> Running {
        let mut moments = self.moments();
        moments.running += 1;
        moments.head = None;
        moments.multiplexed |= multiplexed;
        drop(moments);
        self.asked.notify_waiters();
        Running(self.clone())
    }

    /// Returns when no head is partly read. How long one may take is for [`Self::overdue`] to say.
    pub(crate) async fn no_part_of_a_head(&self) {
        loop {
            // Listened for first and looked at then: one that is complete in between is heard.
            let asked = self.asked.notified();
            if !self.moments().has_part_of_a_head() {
                return;
            }
            asked.await;
        }
    }

    /// An answer on a stream of its own.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        let mut moments = self.moments();
        let id = moments.next_answer;
        moments.next_answer += 1;
        moments.answers.insert(id, Instant::now());
        Open { activity: self.clone(), id }
    }

    /// Returns when the connection has waited for too long.
    pub(crate) async fn overdue(&self, slots: &Semaphore) -> Overdue {
        // Whatever is not being waited for now may be from now on.
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

    /// The earliest deadline of all that is waited for.
    fn deadline(&self, timeouts: &IoTimeouts, is_crowded: bool) -> (Instant, Overdue) {
        let blocked = self.blocked.map(|since| (since + timeouts.answer, Overdue::Answer));
        let stream =
            self.answers.values().min().map(|&since| (since + timeouts.answer, Overdue::Stream));
        let busy = blocked.into_iter().chain(stream).min_by_key(|(deadline, _)| *deadline);
        if let Some(busy) = busy {
            return busy;
        }
        if self.running > 0 {
            // Nothing of the caller's is waited for: looked at again soon.
            return (Instant::now() + timeouts.head, Overdue::Head);
        }
        match self.head {
            Some(since) => (since + timeouts.head, Overdue::Head),
            None => (
                self.idle
                    + if is_crowded { timeouts.head.min(timeouts.idle) } else { timeouts.idle },
                Overdue::Idle,
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

/// An answer on its way down an HTTP/2 stream.
#[derive(Debug)]
pub(crate) struct Open {
    activity: Arc<IoActivity>,
    id: u64,
}

impl Open {
    /// A piece of it could be handed over.
    pub(crate) fn got_on(&self) {
        self.activity.moments().answers.insert(self.id, Instant::now());
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut moments = self.activity.moments();
        moments.answers.remove(&self.id);
        moments.idle = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A activity with ten seconds for heads and answers and seventy-five for idleness, and slots that
    /// are free.
    fn fresh() -> (Arc<IoActivity>, Semaphore) {
        (Arc::new(IoActivity::new(IoTimeouts::default())), Semaphore::new(1))
    }

    /// Waits for what is overdue, and answers after how many seconds it was.
    async fn overdue(activity: &IoActivity, slots: &Semaphore) -> (Overdue, u64) {
        let started = Instant::now();
        let why = activity.overdue(slots).await;
        (why, (started.elapsed() + SECOND / 2).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_drips_a_head_is_overdue_in_time() {
        let (activity, slots) = fresh();
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Head, 10));
        let (activity, slots) = fresh();
        drop(activity.asked(false));
        tokio::time::advance(20 * SECOND).await;
        for _ in 0..9 {
            activity.came();
            tokio::time::advance(SECOND).await;
        }
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Head, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_has_longer_unless_others_wait_for_its_slot() {
        let (activity, slots) = fresh();
        drop(activity.asked(false));
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Idle, 75));
        let (activity, slots) = fresh();
        drop(activity.asked(false));
        slots.forget_permits(1);
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Idle, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_request_is_not_overdue() {
        let (activity, slots) = fresh();
        let running = activity.asked(false);
        activity.came();
        assert!(tokio::time::timeout(1000 * SECOND, activity.overdue(&slots)).await.is_err());
        drop(running);
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Idle, 75));
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_a_byte_now_and_then_is_overdue() {
        let (activity, slots) = fresh();
        drop(activity.asked(false));
        for _ in 0..9 {
            activity.blocked();
            tokio::time::advance(SECOND).await;
            activity.took(1);
        }
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Answer, 1));
        activity.took(STEP);
        activity.blocked();
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Answer, 10));
        activity.flushed();
        assert_eq!(overdue(&activity, &slots).await.0, Overdue::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_stalls_beside_others_is_overdue() {
        let (activity, slots) = fresh();
        drop(activity.asked(true));
        let (_stalled, lively) = (activity.open(), activity.open());
        for _ in 0..9 {
            tokio::time::advance(SECOND).await;
            lively.got_on();
            activity.came();
        }
        assert_eq!(overdue(&activity, &slots).await, (Overdue::Stream, 1));
    }
}
