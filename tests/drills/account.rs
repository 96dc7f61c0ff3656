//! The account of a drill: every add that was tried, and every fault with its time.
//!
//! Each add carries a sequence number of its own (`n`), which comes back in the callback's body. So
//! an add that was never confirmed and was stored anyway is recognised, and so is one that was
//! repeated after a 503 and stored twice.
//!
//! A duplicate is attributed by knowing when faults happened: its two callbacks must lie on both
//! sides of one, the first before the fault was over, the second after it began. Two ids for one
//! number need an add that was repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::receiver::now_ms;

/// One add, as its caller saw it.
#[derive(Clone, Debug, Default)]
pub struct Added {
    pub topic: String,
    /// How often it was sent so that it may have been stored.
    pub tries: u32,
    /// The id and the due moment, once an answer named them.
    pub confirmed: Option<(u64, i64)>,
    /// Which instance answered so, and when.
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

/// Something that was done to the system, and when.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub cause: Cause,
    pub from_ms: i64,
    pub until_ms: i64,
}

/// A fault under way; it is over when this is dropped.
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

/// Shared by the adders and the drill.
#[derive(Debug, Default)]
pub struct Account {
    next: AtomicU64,
    adds: Mutex<BTreeMap<u64, Added>>,
    faults: Mutex<Vec<Fault>>,
    /// How far the store's clock is ahead of this machine's, and from when on; empty where it is
    /// this machine's.
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

    /// An add is about to be sent.
    pub fn trying(&self, n: u64, topic: &str) {
        let mut adds = self.adds.lock().unwrap();
        let added = adds.entry(n).or_default();
        topic.clone_into(&mut added.topic);
        added.tries += 1;
    }

    /// It surely did not reach the service.
    pub fn not_sent(&self, n: u64) {
        let mut adds = self.adds.lock().unwrap();
        if let Some(added) = adds.get_mut(&n) {
            added.tries -= 1;
        }
    }

    pub fn confirmed(&self, n: u64, id: u64, due_ms: i64, by: SocketAddr) {
        let mut adds = self.adds.lock().unwrap();
        let added = adds.get_mut(&n).expect("an answer to an add that was tried");
        added.confirmed = Some((id, due_ms));
        added.taken = Some((by, now_ms()));
    }

    /// The service said that it cannot, 503 or 429, and why.
    pub fn refused(&self, why: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.sentences.lock().unwrap().insert(why.to_owned());
    }

    pub fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// What refusals said, each once.
    pub fn sentences(&self) -> BTreeSet<String> {
        self.sentences.lock().unwrap().clone()
    }

    /// A caller's connection broke before the answer was there.
    pub fn unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    pub fn without_answer(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// The store's clock goes by another time from now on: so much ahead of this machine's.
    pub fn clock_jumps(&self, ahead_ms: i64) {
        self.clock.lock().unwrap().push((now_ms(), ahead_ms));
    }

    /// A moment of this machine by the store's clock. What arrives just after a jump may have been
    /// sent just before it, so it is given the later of the two.
    pub fn by_the_store(&self, at_ms: i64) -> i64 {
        const ON_THE_WAY: i64 = 300;
        let clock = self.clock.lock().unwrap();
        let ahead = |at: i64| {
            clock.iter().rev().find(|(from, _)| *from <= at).map_or(0, |(_, ahead)| *ahead)
        };
        at_ms + ahead(at_ms).max(ahead(at_ms - ON_THE_WAY))
    }

    /// How long an answer took, whatever it was.
    pub fn answered(&self, took: Duration) {
        self.slowest_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub fn slowest_answer(&self) -> Duration {
        Duration::from_micros(self.slowest_us.load(Ordering::Relaxed))
    }

    /// A fault begins.
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
