//! The threads that read. Each query sees one committed state, and never waits for the writer.
//!
//! # Invariants
//!
//! - No caller waits for a silent disk. When a query has made no progress for a moment
//!   ([`Watchdog::is_silent`]), its caller is refused, and so are those behind it if no other
//!   thread is left. A query that takes long but makes progress is waited for.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::queue::{self, Queue};
use super::write_queue::Watchdog;
use crate::store::embedded::disk::fault::{PanicGuard, StoreHealth};
use crate::store::{Error, Result};

/// How often a caller checks whether its query makes progress.
const LOOK: Duration = Duration::from_millis(300);

/// A query has made progress after this many of SQLite's steps, each of which reads a few pages at
/// most. Few enough for a rotating disk, and enough to cost nothing.
const STEPS: i32 = 100;

/// A query, which answers its caller itself.
type Query = Box<dyn FnOnce(&mut Connection, &StoreHealth, &Arc<Watchdog>) + Send>;

/// The queue to some readers.
pub(crate) struct Reads {
    queue: Queue<Query>,
    threads: Vec<Arc<Watchdog>>,
}

/// A reader's end of the queue.
pub(crate) struct ReaderQueue {
    queries: Arc<Mutex<mpsc::Receiver<Query>>>,
    watchdog: Arc<Watchdog>,
}

impl Reads {
    /// The queue, and this number of readers' ends.
    pub(crate) fn new<const READERS: usize>() -> (Self, [ReaderQueue; READERS]) {
        let (queue, queries) = Queue::new();
        let queries = Arc::new(Mutex::new(queries));
        let readers: [ReaderQueue; READERS] = std::array::from_fn(|_| ReaderQueue {
            queries: Arc::clone(&queries),
            watchdog: Arc::default(),
        });
        let threads = readers.iter().map(|reader| Arc::clone(&reader.watchdog)).collect();
        (Self { queue, threads }, readers)
    }

    /// Runs `read` on one committed state.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, mut answer) = oneshot::channel();
        let taken = Arc::new(OnceLock::new());
        let reader = Arc::clone(&taken);
        let query = move |db: &mut Connection, health: &StoreHealth, watchdog: &Arc<Watchdog>| {
            if reply.is_closed() {
                return;
            }
            let _ = reader.set(Arc::clone(watchdog));
            let result = health
                .check()
                .and_then(|()| snapshot(db, read).map_err(|failure| health.judge(&failure)));
            // A caller that has disconnected needs no answer.
            let _ = reply.send(result);
        };
        let is_silent = || match taken.get() {
            Some(watchdog) => watchdog.is_silent(),
            None => {
                !self.threads.is_empty() && self.threads.iter().all(|watchdog| watchdog.is_silent())
            }
        };
        let silent = || Error::Unavailable("the disk is silent: a read gets nowhere".into());
        if is_silent() {
            return Err(silent());
        }
        self.queue.send(Box::new(query)).await?;
        loop {
            match timeout(LOOK, &mut answer).await {
                Ok(answered) => return answered.unwrap_or_else(|_| Err(queue::closed())),
                Err(_) if is_silent() => return Err(silent()),
                Err(_) => {}
            }
        }
    }

    /// Lets the threads end once they have done the queued reads.
    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").finish_non_exhaustive()
    }
}

fn snapshot<T>(
    db: &mut Connection,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = db.transaction()?;
    let result = read(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

/// A thread: works until the queue is closed and empty.
pub(crate) fn run(mut db: Connection, reader: &ReaderQueue, health: &Arc<StoreHealth>) {
    let _guard = PanicGuard(health);
    let watchdog = Arc::clone(&reader.watchdog);
    let gets_on = move || {
        watchdog.step();
        false
    };
    if let Err(failure) = db.progress_handler(STEPS, Some(gets_on)) {
        // Long queries would count as silent; other queries are not affected.
        tracing::warn!("Cannot follow how queries get on: {failure}");
    }
    loop {
        // The lock is held while waiting and released before working; then the next thread waits.
        let query = reader.queries.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(query) = query else { return };
        reader.watchdog.step();
        query(&mut db, health, &reader.watchdog);
        reader.watchdog.rest();
    }
}
