//! A store whose syncs a test holds and fails.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::disk::space;
use super::disk::wal_sync::{LogSync, WalFile};
use super::testing::{Bench, START, lane, new_task, params};
use super::{Embedded, PushLeases};
use crate::model::clock::Clock;
use crate::model::task::{Receipt, TaskId};
use crate::store::{Asker, Error, Grant, LockToken, Settle, Settled, Transition};

/// The limit for an answer that must come.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// Holds and fails syncs.
pub(super) struct SyncGate {
    state: Mutex<HeldSyncs>,
    changed: Condvar,
    begun: watch::Sender<u64>,
}

pub(super) struct HeldSyncs {
    /// How many more syncs may end; `None`: all.
    may_end: Option<u64>,
    pub(super) fails: bool,
}

impl SyncGate {
    pub(super) fn new() -> Arc<Self> {
        let state = Mutex::new(HeldSyncs { may_end: None, fails: false });
        Arc::new(Self { state, changed: Condvar::new(), begun: watch::Sender::new(0) })
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut HeldSyncs)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Lets this many further syncs end.
    pub(super) fn let_end(&self, count: u64) {
        self.set(|state| state.may_end = Some(count));
    }

    pub(super) fn open(&self) {
        self.set(|state| state.may_end = None);
    }

    /// How many syncs have begun.
    pub(super) fn count(&self) -> u64 {
        *self.begun.borrow()
    }

    /// Waits until this many syncs have begun.
    pub(super) async fn begun(&self, count: u64) {
        let mut begun = self.begun.subscribe();
        timeout(LONG, begun.wait_for(|begun| *begun >= count)).await.expect("it begins").unwrap();
    }

    fn pass(&self) -> io::Result<()> {
        self.begun.send_modify(|begun| *begun += 1);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.may_end == Some(0) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.may_end = state.may_end.map(|count| count - 1);
        if state.fails { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }
}

pub(super) struct Gated {
    pub(super) gate: Arc<SyncGate>,
    pub(super) log: Option<WalFile>,
}

impl LogSync for Gated {
    fn sync(&mut self) -> io::Result<()> {
        self.gate.pass()?;
        self.log.as_mut().map_or(Ok(()), LogSync::sync)
    }
}

/// Opens the gate when a test ends, or a failed one would wait for its store for ever.
pub(super) struct Opener(Arc<SyncGate>);

impl std::ops::Deref for Opener {
    type Target = SyncGate;

    fn deref(&self) -> &SyncGate {
        &self.0
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A store, and its gate. The gate is dropped first.
pub(super) fn bench() -> (Bench, Opener) {
    let (folder, clock, gate) =
        (tempfile::tempdir().unwrap(), Clock::manual(START), SyncGate::new());
    let disk = space::Params::of(&params(folder.path(), &clock).path, 1 << 20);
    let held = Arc::clone(&gate);
    let open_log =
        Box::new(|log| Box::new(Gated { gate: held, log: Some(log) }) as Box<dyn LogSync>);
    let store = Embedded::open_with(disk, clock.clone(), PushLeases::Void, open_log).unwrap();
    (Bench { store, clock, folder }, Opener(gate))
}

impl Bench {
    /// Returns when the writer has concluded all undoable work so far, and the promised work that
    /// waits for no sync to begin.
    pub(super) async fn writer_is_through(&self) {
        for _ in 0..2 {
            let through = self.store.writes.run_undoable(1, |_| Ok(()));
            timeout(LONG, through).await.expect("the writer gets on").unwrap();
        }
    }

    /// Returns when the lane has this many scheduled tasks. Those need not be durable.
    pub(super) async fn committed(&self, scheduled: u64) {
        let all = async {
            while self.scheduled().await < scheduled {
                self.writer_is_through().await;
            }
        };
        timeout(LONG, all).await.expect("they are committed");
        assert_eq!(self.scheduled().await, scheduled);
    }

    pub(super) async fn work(&self, wants: &[(&str, usize)]) -> Grant {
        let holder = Some(LockToken("worker".into()));
        timeout(LONG, self.claim_by(holder, wants)).await.expect("it waits for no sync").unwrap()
    }

    pub(super) fn settles(
        &self,
        id: TaskId,
        receipt: &Receipt,
        transition: Transition,
    ) -> Vec<Settle> {
        vec![Settle { lane: lane(), id, receipt: receipt.clone(), transition }]
    }

    pub(super) async fn settle_by(
        &self,
        asker: Asker,
        id: TaskId,
        receipt: &Receipt,
        transition: Transition,
    ) -> Settled {
        let settles = self.settles(id, receipt, transition);
        self.store.settle(asker, settles).await.remove(0).unwrap()
    }

    pub(super) async fn add_one(&self) -> Result<TaskId, Error> {
        self.store.add(vec![new_task("a", 0)]).await.remove(0).map(|added| added.id)
    }

    pub(super) async fn scheduled(&self) -> u64 {
        self.store.stats(&lane()).await.unwrap().scheduled
    }
}

pub(super) fn ids(grant: &Grant) -> Vec<TaskId> {
    grant.tasks.iter().map(|task| task.id).collect()
}
