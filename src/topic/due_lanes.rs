//! The lanes whose recurring schedules are to be planned.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::model::task::Lane;

/// The lanes in which the poll found a planned moment that has passed, until the planner takes
/// them.
#[derive(Debug, Default)]
pub struct DueLanes {
    lanes: Mutex<BTreeSet<Lane>>,
    found: Notify,
}

impl DueLanes {
    /// Adds lanes, and wakes the planner.
    pub fn add(&self, lanes: impl IntoIterator<Item = Lane>) {
        let mut due = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        due.extend(lanes);
        if !due.is_empty() {
            self.found.notify_one();
        }
    }

    /// Waits until there are lanes, and takes all of them.
    pub async fn take(&self) -> BTreeSet<Lane> {
        loop {
            let lanes =
                std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
            if !lanes.is_empty() {
                return lanes;
            }
            self.found.notified().await;
        }
    }
}
