//! The account of a drill: every add that was tried, and every fault with its time.
//!
//! Each add carries a sequence number (`n`), which comes back in the callback's body. So the drill
//! recognises an add that was stored without being confirmed, and an add that was repeated after a
//! 503 and stored twice.
//!
//! A duplicate is attributed to a fault by its time. Its first callback must lie before the end of
//! the fault, and its second after the beginning. Two ids for one number need an add that was
//! repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::receiver::now_ms;

/// One add as its caller saw it.
#[derive(Clone, Debug, Default)]
pub struct Added {
    pub topic: String,
    /// How often it was sent in such a way that it may have been stored.
    pub tries: u32,
    /// The id and the due moment, once an answer contained them.
    pub confirmed: Option<(u64, i64)>,
    /// Which instance confirmed it, and when.
    pub taken: Option<(SocketAddr, i64)>,
}

/// What can make a task come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Crash,
    StoreAway,
    Timeout,
    LeaseRanOut,
    Failover,
    AddRepeated,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::StoreAway => "lost reply",
            Self::Timeout => "timeout",
            Self::LeaseRanOut => "lease ran out",
            Self::Failover => "failover",
            Self::AddRepeated => "add repeated",
        }
    }
}

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub cause: Cause,
    pub from_ms: i64,
    pub until_ms: i64,
}

/// A current fault. It ends when this is dropped.
#[derive(Debug)]
pub struct Ongoing<'a> {
    account: &'a Account,
    cause: Cause,
    from_ms: i64,
}

impl Drop for Ongoing<'_> {
    fn drop(&mut self) {
        let fault = Fault { cause: self.cause, from_ms: self.from_ms, until_ms: now_ms() };
        self.account.faults.lock().unwrap().push(fault);
    }
}

/// The account, shared by the adders and the drill.
#[derive(Debug, Default)]
pub struct Account {
    next: AtomicU64,
    adds: Mutex<BTreeMap<u64, Added>>,
    faults: Mutex<Vec<Fault>>,
    /// How far the store's clock is ahead of this machine's, and since when; empty if both clocks
    /// are the same.
    clock: Mutex<Vec<(i64, i64)>>,
    refused: AtomicU64,
    sentences: Mutex<BTreeSet<String>>,
    unanswered: AtomicU64,
    slowest_us: AtomicU64,
}

impl Account {
    pub fn open() -> Arc<Self> {
        Arc::default()
    }

    /// A number for the next task.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Records an add that is about to be sent.
    pub fn trying(&self, n: u64, topic: &str) {
        let mut adds = self.adds.lock().unwrap();
        let added = adds.entry(n).or_default();
        topic.clone_into(&mut added.topic);
        added.tries += 1;
    }

    /// Records that the last sending certainly did not reach the service.
    pub fn not_sent(&self, n: u64) {
        let mut adds = self.adds.lock().unwrap();
        if let Some(added) = adds.get_mut(&n) {
            added.tries -= 1;
        }
    }

    pub fn confirmed(&self, n: u64, id: u64, due_ms: i64, by: SocketAddr) {
        let mut adds = self.adds.lock().unwrap();
        let added = adds.get_mut(&n).expect("only sent adds are answered");
        added.confirmed = Some((id, due_ms));
        added.taken = Some((by, now_ms()));
    }

    /// Records a refusal, 503 or 429, with its message.
    pub fn refused(&self, why: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.sentences.lock().unwrap().insert(why.to_owned());
    }

    pub fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The messages of the refusals, each once.
    pub fn sentences(&self) -> BTreeSet<String> {
        self.sentences.lock().unwrap().clone()
    }

    /// Records a connection that broke before the answer arrived.
    pub fn unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    pub fn without_answer(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// From now on the store's clock is `ahead_ms` ahead of this machine's.
    pub fn clock_jumps(&self, ahead_ms: i64) {
        self.clock.lock().unwrap().push((now_ms(), ahead_ms));
    }

    /// A moment of this machine by the store's clock. A call that arrives just after a jump may
    /// have been sent just before it, so it gets the later of the two times.
    pub fn by_the_store(&self, at_ms: i64) -> i64 {
        const ON_THE_WAY: i64 = 300;
        let clock = self.clock.lock().unwrap();
        let ahead = |at: i64| {
            clock.iter().rev().find(|(from, _)| *from <= at).map_or(0, |(_, ahead)| *ahead)
        };
        at_ms + ahead(at_ms).max(ahead(at_ms - ON_THE_WAY))
    }

    /// Records how long an answer took, whatever it was.
    pub fn answered(&self, took: Duration) {
        self.slowest_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub fn slowest_answer(&self) -> Duration {
        Duration::from_micros(self.slowest_us.load(Ordering::Relaxed))
    }

    /// Begins a fault.
    pub fn fault(&self, cause: Cause) -> Ongoing<'_> {
        Ongoing { account: self, cause, from_ms: now_ms() }
    }

    pub fn faults(&self) -> Vec<Fault> {
        self.faults.lock().unwrap().clone()
    }

    pub fn adds(&self) -> BTreeMap<u64, Added> {
        self.adds.lock().unwrap().clone()
    }

    pub fn accepted(&self) -> usize {
        self.adds.lock().unwrap().values().filter(|added| added.confirmed.is_some()).count()
    }
}
