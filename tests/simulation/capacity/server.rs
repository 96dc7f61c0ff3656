//! One Redis server: a thread that runs requests one after the other, in the order of their
//! arrival.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::costs::{Job, Script};
use super::fine_time::FineTime;
use super::setup::Setup;

/// A server, and what it has done.
#[derive(Debug)]
pub(crate) struct Server {
    time: Arc<FineTime>,
    /// How many times longer than measured its scripts take.
    slowness: u32,
    /// When it does nothing.
    stall: Range<Duration>,
    /// Its queue: waiters get it in the order in which they came.
    turn: tokio::sync::Mutex<()>,
    work: Mutex<Work>,
}

/// What a server did in some time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) by_script: BTreeMap<Script, Done>,
    /// How long it was busy, by the clock.
    pub(crate) busy: Duration,
}

/// The calls of one script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) calls: u64,
    /// The tasks, lanes or instances in the calls.
    pub(crate) items: u64,
    /// The time of the calls, by their costs.
    pub(crate) time: Duration,
}

impl Work {
    pub(crate) fn add(&mut self, other: Self) {
        self.busy += other.busy;
        for (script, done) in other.by_script {
            let own = self.by_script.entry(script).or_default();
            own.calls += done.calls;
            own.items += done.items;
            own.time += done.time;
        }
    }
}

impl Server {
    pub(crate) fn new(time: Arc<FineTime>, setup: &Setup) -> Self {
        let Setup { slowness, stall, warm_up, .. } = *setup;
        let stall = warm_up / 2..warm_up / 2 + stall;
        Self { time, slowness, stall, turn: tokio::sync::Mutex::new(()), work: Mutex::default() }
    }

    /// Waits for the requests before this one, and then takes the time of its job. `act` runs at
    /// the beginning, as a script reads the clock then, and says what the job was.
    pub(crate) async fn serve<T>(&self, act: impl FnOnce() -> (T, Job)) -> T {
        let _turn = self.turn.lock().await;
        if self.stall.contains(&self.time.elapsed()) {
            self.time.until(self.stall.end).await;
        }
        let since = self.time.elapsed();
        let (answer, job) = act();
        let takes = job.time() * self.slowness;
        self.time.sleep(takes).await;
        let mut work = self.work.lock().unwrap();
        work.busy += self.time.elapsed() - since;
        let done = work.by_script.entry(job.script).or_default();
        done.calls += job.calls as u64;
        done.items += job.items as u64;
        done.time += takes;
        answer
    }

    /// What it did since the last call of this function.
    pub(crate) fn take_work(&self) -> Work {
        std::mem::take(&mut self.work.lock().unwrap())
    }
}
