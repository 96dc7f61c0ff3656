//! The threads that read: each query sees one committed state, and never waits for the writer.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::{Health, PanicGuard};
use super::queue::{self, Queue};
use crate::store::Result;

/// Something to be read. It answers its caller itself.
pub(super) type Query = Box<dyn FnOnce(&mut Connection, &Health) + Send>;

/// The queue to the readers.
pub(super) type Reads = Queue<Query>;

impl Reads {
    /// Runs `read` on one committed state.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let query = move |db: &mut Connection, health: &Health| {
            if reply.is_closed() {
                return;
            }
            let result = health.check().and_then(|()| snapshot(db, read).map_err(|failure| health.judge(&failure)));
            // A caller who went away needs no answer.
            let _ = reply.send(result);
        };
        self.send(Box::new(query)).await?;
        answer.await.unwrap_or_else(|_| Err(queue::closed()))
    }
}

fn snapshot<T>(db: &mut Connection, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let transaction = db.transaction()?;
    let result = read(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

/// A thread: works until the queue is closed and empty.
pub(super) fn run(mut db: Connection, queries: &Mutex<mpsc::Receiver<Query>>, health: &Arc<Health>) {
    let _guard = PanicGuard(health);
    loop {
        // The lock is held while waiting and let go before working; the next thread then waits in its stead.
        let query = queries.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(query) = query else { return };
        query(&mut db, health);
    }
}
