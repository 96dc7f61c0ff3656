//! Sleeps of microseconds in tokio's paused time.
//!
//! Tokio's timers have whole milliseconds, and a script of Redis takes tens of microseconds. So a
//! sleep here takes tokio's timer up to the last whole millisecond, and then waits in a list of its
//! own. When no task can run, a driver advances tokio's time to the first sleep of the list, or to
//! the next whole millisecond. No timer of tokio falls between two whole milliseconds, so the
//! driver passes none.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, advance, sleep_until};

const MILLISECOND: Duration = Duration::from_millis(1);

/// The time of one run.
#[derive(Debug, Default)]
pub(crate) struct FineTime {
    began: OnceLock<Instant>,
    /// The sleeps that end within this millisecond, by their ends and their order.
    sleeps: Mutex<BTreeMap<(Duration, u64), oneshot::Sender<()>>>,
    order: AtomicU64,
    /// Whether the time is between two whole milliseconds.
    is_between: AtomicBool,
    /// Notified when no task can run and the time is to be advanced here.
    idle: Notify,
}

/// Runs a part on a runtime of its own, whose time is paused.
pub(crate) fn run<F: Future>(part: impl FnOnce(Arc<FineTime>) -> F) -> F::Output {
    let time = Arc::new(FineTime::default());
    let parked = time.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(move || parked.is_idle())
        .build()
        .unwrap();
    runtime.block_on(async {
        time.began.set(Instant::now()).expect("it is set once");
        tokio::spawn(time.clone().drive());
        part(time).await
    })
}

impl FineTime {
    /// No task can run. Wakes the driver, unless a timer of tokio is next: then tokio advances the
    /// time, by whole milliseconds.
    fn is_idle(&self) {
        if self.is_between.load(Ordering::Relaxed) || !self.sleeps.lock().unwrap().is_empty() {
            self.idle.notify_one();
        }
    }

    /// Advances the time to the first sleep, or else to the next whole millisecond, each time that
    /// no task can run.
    async fn drive(self: Arc<Self>) {
        loop {
            self.idle.notified().await;
            let now = self.elapsed();
            let first = self.sleeps.lock().unwrap().pop_first();
            match first {
                Some(((end, _), sleeper)) => {
                    advance(end - now).await;
                    // A task that was cut off does not wait any more.
                    let _ = sleeper.send(());
                }
                None => advance(MILLISECOND - remainder(now)).await,
            }
            let is_between = !remainder(self.elapsed()).is_zero();
            self.is_between.store(is_between, Ordering::Relaxed);
        }
    }

    /// The time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began().elapsed()
    }

    fn began(&self) -> Instant {
        *self.began.get().expect("it is set at the beginning")
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        self.until(self.elapsed() + span).await;
    }

    /// Returns at this moment since the beginning, to the nanosecond.
    pub(crate) async fn until(&self, moment: Duration) {
        let whole = moment - remainder(moment);
        if self.elapsed() < whole {
            sleep_until(self.began() + whole).await;
        }
        if self.elapsed() < moment {
            let (sleeper, ended) = oneshot::channel();
            let order = self.order.fetch_add(1, Ordering::Relaxed);
            self.sleeps.lock().unwrap().insert((moment, order), sleeper);
            // The driver drops no sleeper.
            let _ = ended.await;
        }
    }
}

/// What goes beyond whole milliseconds.
fn remainder(span: Duration) -> Duration {
    Duration::from_nanos(u64::from(span.subsec_nanos() % 1_000_000))
}

#[test]
fn sleeps_end_to_the_nanosecond_and_in_their_order() {
    let ends = run(async |time| {
        let ends = Arc::new(Mutex::new(Vec::new()));
        let micros = [700, 30, 30, 1_030, 2_000, 2_999, 3_000];
        let sleeps = micros.map(|micros| {
            let (time, ends) = (time.clone(), ends.clone());
            tokio::spawn(async move {
                time.until(Duration::from_micros(micros)).await;
                assert_eq!(time.elapsed(), Duration::from_micros(micros));
                // A timer of tokio ends at a whole millisecond.
                tokio::time::sleep(Duration::from_millis(2)).await;
                ends.lock().unwrap().push(time.elapsed().as_micros());
            })
        });
        for sleep in sleeps {
            sleep.await.unwrap();
        }
        let ends = ends.lock().unwrap();
        ends.clone()
    });
    assert_eq!(ends, [3_000, 3_000, 3_000, 4_000, 4_000, 5_000, 5_000]);
}
