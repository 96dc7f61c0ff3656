//! The writer, which two threads use in turn.
//!
//! The writer thread waits for jobs and carries them out. While the sync thread confirms a batch of
//! promised work, the next one gathers in its queue. The sync thread carries it out itself, between
//! two fsyncs. So a busy store needs no switch between threads for a batch. The writer thread
//! carries out undoable work meanwhile.
//!
//! # Invariants
//!
//! - When a panic has interrupted the writer, nothing more is written.
//! - The connection is closed before the checkpoint thread makes its last copy.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use super::confirmations::Confirmations;
use super::inbox::{Inbox, NextStep};
use super::writer::Writer;
use crate::store::embedded::disk::fault::{PanicGuard, StoreHealth};

/// See the module.
#[derive(Default)]
pub(crate) struct SharedWriter {
    /// `None` once the writer thread has ended, or if there is none.
    parts: Mutex<Option<WriterParts>>,
    /// Wakes the writer thread.
    waker: OnceLock<Waker>,
}

struct WriterParts {
    inbox: Inbox,
    writer: Writer,
}

impl SharedWriter {
    pub(crate) fn new(inbox: Inbox, writer: Writer) -> Self {
        let parts = Mutex::new(Some(WriterParts { inbox, writer }));
        Self { parts, waker: OnceLock::new() }
    }

    /// The writer thread: works until the queues are closed and empty.
    pub(crate) fn run(&self, confirmations: &Confirmations, health: &StoreHealth) {
        let _end = CloseGuard(confirmations);
        let _guard = PanicGuard(health);
        let waker = self.waker.get_or_init(|| Waker::from(Arc::new(Unpark(thread::current()))));
        while let Some(mut guard) = self.lock()
            && let Some(parts) = guard.as_mut()
        {
            match parts.inbox.next(waker) {
                NextStep::Write(jobs) => parts.writer.write(jobs),
                NextStep::Wait(limit) => {
                    drop(guard);
                    limit.map_or_else(thread::park, thread::park_timeout);
                }
                NextStep::End => *guard = None,
            }
        }
    }

    /// Called by the sync thread after each sync: carries out a part of the next promised batch,
    /// if one waits.
    pub(crate) fn write_promised(&self) {
        if let (Some(waker), Some(mut parts)) = (self.waker.get(), self.lock())
            && let Some(WriterParts { inbox, writer }) = parts.as_mut()
        {
            let jobs = inbox.next_promised(waker);
            if !jobs.is_empty() {
                writer.write(jobs);
                if inbox.may_have_more() {
                    waker.wake_by_ref();
                }
            }
        }
    }

    /// Lets the writer thread look at what has changed.
    pub(crate) fn wake(&self) {
        self.waker.get().inspect(|waker| waker.wake_by_ref());
    }

    /// `None` if a thread has panicked while it wrote.
    fn lock(&self) -> Option<MutexGuard<'_, Option<WriterParts>>> {
        self.parts.lock().ok()
    }
}

/// Wakes the writer thread when a job is queued.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Tells the sync thread that the writer thread has ended.
struct CloseGuard<'a>(&'a Confirmations);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
