//! Which callers a silent disk delays, and how long. A job that holds the writer's thread stands
//! for an fsync that does not return.

use std::pin::Pin;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::testing::{Bench, bench, delivered, lane, new_task};
use super::threads::write_queue::SILENCE;
use crate::model::task::State;
use crate::store::{
    Asker, Claim, Error, NewTask, Result, Settle, Settled, Signals, Transition, Want,
};

/// Far longer than a caller waits: the limit for an answer in these tests.
const LONG: Duration = Duration::from_secs(20);

/// The writer, held within a transaction until this ends.
struct Hang<'a> {
    gate: mpsc::Sender<()>,
    held: Pin<Box<dyn Future<Output = Result<()>> + 'a>>,
}

impl Bench {
    async fn hang(&self) -> Hang<'_> {
        let (gate, closed) = mpsc::channel::<()>();
        let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let mut held = Box::pin(self.store.writes.run(1, move |_| {
            begin.send(()).unwrap();
            // An error means that the gate has opened.
            let _ = closed.recv();
            Ok(())
        }));
        tokio::select! {
            _ = &mut held => panic!("nothing holds the writer"),
            _ = begun.recv() => Hang { gate, held },
        }
    }

    async fn add_sized(&self, bytes: usize) -> Result<()> {
        let task = NewTask { content: "x".repeat(bytes), ..new_task("a", 0) };
        timeout(LONG, self.store.add(vec![task])).await.expect("it is answered").remove(0).map(drop)
    }
}

impl Hang<'_> {
    async fn end(self) {
        drop(self.gate);
        self.held.await.unwrap();
    }
}

fn assert_unavailable(answer: Result<()>, says: &str) {
    assert!(matches!(&answer, Err(Error::Unavailable(text)) if text.contains(says)), "{answer:?}");
}

#[tokio::test]
async fn a_silent_disk_costs_an_edge_call_a_second_and_the_next_ones_nothing() {
    let bench = bench();
    let id = bench.add("a", 0).await;
    let later = bench.add("b", 60_000).await;
    let receipt = bench.lease().await;
    let hang = bench.hang().await;
    assert_unavailable(bench.add_sized(10).await, "silent");

    // Answered at the first poll.
    let added = timeout(Duration::ZERO, bench.store.add(vec![new_task("a", 0)])).await;
    let mut added = added.expect("it is refused at once");
    assert_unavailable(added.remove(0).map(drop), "silent");
    let cancelled = timeout(Duration::ZERO, bench.store.cancel(&lane(), later, None))
        .await
        .expect("it is refused at once");
    assert_unavailable(cancelled.map(drop), "silent");
    let lane = lane();
    let extended = bench.store.extend(Asker::Caller, &lane, id, &receipt, LONG);
    let extended = timeout(Duration::ZERO, extended).await.expect("it is refused at once");
    assert_unavailable(extended.map(drop), "silent");
    let ack = Settle {
        lane: lane.clone(),
        id,
        receipt: receipt.clone(),
        transition: Transition::Release,
    };
    let acked = timeout(Duration::ZERO, bench.store.settle(Asker::Caller, vec![ack])).await;
    assert_unavailable(acked.expect("it is refused at once").remove(0).map(drop), "silent");
    // The worker's own calls are neither refused nor lost.
    let (settled, ()) = tokio::join!(bench.settle(id, &receipt, delivered()), hang.end());
    assert_eq!(settled, Settled::Done);

    bench.add_sized(10).await.unwrap();
    let counts = bench.store.stats(&lane).await.unwrap();
    assert_eq!(
        (counts.scheduled, counts.delivered),
        (2, 1),
        "a refused add is not stored after all"
    );
}

/// An fsync that hangs for a minute must not fill the memory with content whose callers have
/// disconnected.
#[tokio::test]
async fn what_waits_for_a_silent_disk_is_bounded_by_its_bytes() {
    let bench = bench();
    let room = || bench.store.writes.room.available_permits();
    let before = room();
    let hang = bench.hang().await;
    // A larger add is accepted when no other waits, and then it is the only one.
    let (large, small) = tokio::join!(bench.add_sized(65 << 20), bench.add_sized(10));
    assert_unavailable(large, "silent");
    assert_unavailable(small, "");
    assert_eq!(room(), 0, "it is in memory still");
    hang.end().await;
    bench.claim(&[]).await;
    assert_eq!(room(), before);
    bench.add_sized(10).await.unwrap();
}

/// A read that hung blocked its caller for as long as the API lets a request take, and all callers
/// behind it.
#[tokio::test]
async fn nobody_waits_for_a_read_that_gets_nowhere() {
    let bench = bench();
    let id = bench.add("a", 0).await;
    let hold = || {
        let (gate, closed) = mpsc::channel::<()>();
        (gate, bench.store.reads.run(move |_| Ok(closed.recv().is_err())))
    };
    let ((one, first), (two, second)) = (hold(), hold());
    let behind = async { bench.store.summaries(&lane(), vec![id]).await.map(drop) };
    let (first, second, behind) =
        timeout(LONG, async { tokio::join!(first, second, behind) }).await.expect("answers");
    for answer in [first.map(drop), second.map(drop), behind] {
        assert_unavailable(answer, "silent");
    }
    let next =
        timeout(Duration::ZERO, bench.store.stats(&lane())).await.expect("it is refused at once");
    assert_unavailable(next.map(drop), "silent");
    drop((one, two));
    // As soon as the disk answers, so do the readers.
    let again = async {
        while bench.store.stats(&lane()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("the readers are back");
}

#[tokio::test]
async fn a_read_that_takes_long_and_gets_on_is_waited_for() {
    let bench = bench();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let until = Instant::now() + 2 * SILENCE;
    let reading = bench.store.reads.run(move |db| {
        let mut statement = db.prepare(endless)?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() && Instant::now() < until {}
        Ok(())
    });
    reading.await.unwrap();
}

/// A purge waited for as long as it was allowed to.
#[tokio::test]
async fn a_silent_disk_does_not_hold_up_a_purge() {
    let bench = bench();
    bench.add("a", 0).await;
    let hang = bench.hang().await;
    let cleared = timeout(LONG, bench.store.clear(&lane(), 10)).await.expect("it is answered");
    assert_unavailable(cleared.map(drop), "silent");
    hang.end().await;
}

/// A consumer's lease may last for hours: tasks that it took too late would be lost until then.
#[tokio::test]
async fn what_a_consumer_takes_too_late_is_given_back() {
    let bench = bench();
    let id = bench.add("@pull", 0).await;
    let mut hints = bench.store.hints();
    let hang = bench.hang().await;
    let want = Want { destination: "@pull".parse().unwrap(), slots: 1 };
    let claim = Claim {
        lane: lane(),
        wants: vec![want],
        lease: LONG,
        holder: None,
        more: false,
        after: None,
        in_hand: 0,
        misfires: Vec::new(),
    };
    let pulled = timeout(LONG, bench.store.claim(claim)).await.expect("it is answered");
    assert_unavailable(pulled.map(drop), "silent");
    hang.end().await;
    let back = timeout(LONG, hints.recv()).await.expect("it waits again").unwrap();
    assert!(back.is_pull);
    let task = bench.get(id).await;
    assert_eq!((task.state, task.attempts), (State::Scheduled, 0));
}
