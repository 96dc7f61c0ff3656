//! Opens a store for a check only.
//!
//! A check without repair cannot write, so it needs no lock. It may run beside the delayd that has
//! the file; each page is read from one committed state. A repair has the file for itself. Neither
//! voids leases, because neither works the tasks.

use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;
use tokio_util::task::TaskTracker;

use super::disk::{fault, identity, schema, space};
use super::threads::{reader, write_queue};
use super::{Embedded, Params, Threads, spawn};
use crate::metrics::StoreMetrics;
use crate::store::{Error, Result};

impl Embedded {
    /// Opens an existing file for a check, with or without repair.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such file, it is of another version, or, for a
    /// repair, a running delayd has it.
    pub fn open_for_check(params: Params, repair: bool) -> Result<Self> {
        schema::ensure_there(&params.path)?;
        if repair {
            let disk = space::Params::of(&params.path, params.reserve);
            let opened = Self::open_on(disk, params.clock, super::PushLeases::Go);
            return opened.map_err(|error| match error {
                Error::Misconfigured(text) => Error::Misconfigured(format!(
                    "a repair needs the file for itself, while fsck without --repair looks beside \
                        a running delayd: {text}"
                )),
                error => error,
            });
        }
        Self::open_to_look(params)
    }

    fn open_to_look(Params { path, clock, .. }: Params) -> Result<Self> {
        let health = Arc::new(fault::StoreHealth::new());
        let db = schema::open_to_look(&path)?;
        let id = identity::read(&db).map_err(|failure| fault::explain(&path, &failure))?;
        // Nothing receives the writes: they are refused.
        let (writes, ..) = write_queue::WriteQueue::new(Arc::default());
        // Only checks are read.
        let [(reads, []), (polls, [])] = std::array::from_fn(|_| reader::Reads::new());
        let (scans, [reader]) = reader::Reads::new();
        let watched = Arc::clone(&health);
        let handles = vec![spawn("store-scan", move || reader::run(db, &reader, &watched))?];
        let (hints, _) = broadcast::channel(1);
        let threads = Mutex::new(Threads { handles, ..Threads::default() });
        Ok(Self {
            id,
            // Nothing is written.
            format: 0,
            recurring: Arc::default(),
            writes: Arc::new(writes),
            claims: TaskTracker::new(),
            reads,
            polls: Box::new(polls),
            scans,
            clock,
            hints,
            health,
            meter: None,
            metrics: StoreMetrics::embedded(),
            threads,
        })
    }
}
