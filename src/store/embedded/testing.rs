//! A store in a temporary folder with a manual clock, and short names for its methods.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::disk::schema::PAGE;
use super::{Embedded, Params};
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{Destination, Lane, Options, Receipt, State, TaskId};
use crate::store::{
    Asker, CheckCursor, Claim, Claimed, Grant, ListQuery, Listed, LockToken, Moment, NewTask,
    Reader, Result, Settle, Settled, Task, TopicEntry, Transition, Want,
};

/// When the tests begin.
pub(super) const START: UnixMillis = UnixMillis(1_800_000_000_000);

pub(super) const LEASE: Duration = Duration::from_secs(30);

pub(super) struct Bench {
    pub(super) store: Embedded,
    pub(super) clock: Clock,
    pub(super) folder: TempDir,
}

/// A store in `folder`.
pub(super) fn params(folder: &Path, clock: &Clock) -> Params {
    Params { path: folder.join("delayd.db"), reserve: 1 << 20, clock: clock.clone() }
}

pub(super) fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(START);
    let store = Embedded::open(params(folder.path(), &clock)).unwrap();
    Bench { store, clock, folder }
}

pub(super) fn lane() -> Lane {
    "orders:0".parse().unwrap()
}

pub(super) fn topic() -> TopicEntry {
    TopicEntry { topic: "orders".parse().unwrap(), shards: 1 }
}

pub(super) fn new_task(destination: &str, after_ms: u64) -> NewTask {
    NewTask {
        topic: topic(),
        destination: destination.parse().unwrap(),
        moment: Moment::After(Duration::from_millis(after_ms)),
        options: Options::default(),
        content: format!("{{\"to\":\"{destination}\"}}"),
        idempotency: None,
        quota: None,
    }
}

pub(super) fn retry(after_ms: u64) -> Transition {
    let due = Moment::After(Duration::from_millis(after_ms));
    Transition::Retry { due, outcome: "503".into() }
}

pub(super) fn delivered() -> Transition {
    Transition::Delivered { outcome: "200 OK".into() }
}

pub(super) fn dead() -> Transition {
    Transition::Dead { outcome: "410 Gone".into() }
}

impl Bench {
    /// Closes the store and opens the file again.
    pub(super) fn reopen(self) -> Self {
        let Self { store, clock, folder } = self;
        drop(store);
        let store = Embedded::open(params(folder.path(), &clock)).unwrap();
        Self { store, clock, folder }
    }

    pub(super) fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    pub(super) async fn add(&self, destination: &str, after_ms: u64) -> TaskId {
        self.store.add(vec![new_task(destination, after_ms)]).await.remove(0).unwrap().id
    }

    pub(super) async fn claim(&self, wants: &[(&str, usize)]) -> Grant {
        self.try_claim(wants).await.unwrap()
    }

    pub(super) async fn try_claim(&self, wants: &[(&str, usize)]) -> Result<Grant> {
        self.claim_by(None, wants).await
    }

    /// Claims as a worker or as a consumer.
    pub(super) async fn claim_by(
        &self,
        holder: Option<LockToken>,
        wants: &[(&str, usize)],
    ) -> Result<Grant> {
        let want = |(name, slots): &(&str, usize)| Want {
            destination: name.parse().unwrap(),
            slots: *slots,
        };
        let claim = Claim {
            lane: lane(),
            wants: wants.iter().map(want).collect(),
            lease: LEASE,
            holder,
            more: false,
            after: None,
            in_hand: 0,
            misfires: Vec::new(),
        };
        match self.store.claim(claim).await? {
            Claimed::Granted(grant) => Ok(grant),
            Claimed::Refused { .. } => panic!("no claim is refused here"),
        }
    }

    /// Leases the one due task of `a`.
    pub(super) async fn lease(&self) -> Receipt {
        let grant = self.claim(&[("a", 1)]).await;
        assert_eq!(grant.tasks.len(), 1);
        grant.receipt
    }

    pub(super) async fn settle(
        &self,
        id: TaskId,
        receipt: &Receipt,
        transition: Transition,
    ) -> Settled {
        let settle = Settle { lane: lane(), id, receipt: receipt.clone(), transition };
        self.store.settle(Asker::Worker, vec![settle]).await.remove(0).unwrap()
    }

    pub(super) async fn get(&self, id: TaskId) -> Task {
        self.store.get(Reader::Worker, &lane(), id).await.unwrap().unwrap()
    }

    pub(super) async fn state(&self, id: TaskId) -> State {
        self.get(id).await.state
    }

    pub(super) async fn list(
        &self,
        state: State,
        after: Option<Listed>,
        limit: usize,
    ) -> Vec<Listed> {
        let (from, to) = (UnixMillis(0), UnixMillis(i64::MAX));
        self.store.list(ListQuery { lane: lane(), state, from, to, after, limit }).await.unwrap()
    }

    /// Asserts that a check finds nothing.
    pub(super) async fn assert_in_order(&self) {
        let mut next = Some(CheckCursor::start());
        while let Some(cursor) = next {
            let checked = self.store.check(cursor, false).await.unwrap();
            assert!(checked.findings.is_empty(), "{:?}", checked.findings);
            next = checked.next;
        }
    }

    /// The next moment of the lane, in milliseconds from the start.
    pub(super) async fn next_due(&self) -> Option<i64> {
        let next = self.store.next_due(vec![lane()]).await.unwrap();
        next.lanes[0].map(|moment| moment.0 - START.0)
    }
}

pub(super) fn names(destinations: &[Destination]) -> Vec<&str> {
    destinations.iter().map(Destination::as_str).collect()
}

impl Bench {
    /// Limits the file's size to so many KiB, as a full disk would.
    pub(super) async fn limit_size(&self, kib: Option<u32>) {
        let limit = kib.map_or(u32::MAX - 1, |kib| kib * 1_024 / u32::from(PAGE));
        let set = move |tx: &mut super::write_tx::WriteTx<'_>| {
            tx.db.query_row(&format!("PRAGMA max_page_count = {limit}"), [], |_| Ok(()))
        };
        self.store.writes.run(1, set).await.unwrap();
    }
}
