//! The roles together, over a store that is watched.

use std::time::Duration;

use super::testing::{Bench, soon};
use crate::store::Store;
use crate::task::Destination;

/// The look had read what is held before the hold was set, and ended it when the answer had come.
#[tokio::test]
async fn a_look_that_began_before_a_hold_does_not_undo_it() {
    let bench = Bench::start(&[("message.call", 0)], |params| params.look_every = Duration::from_millis(10));
    let (store, parts) = (&bench.store, bench.parts());
    let destination: Destination = "message.call".parse().unwrap();
    store.holds_gate.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    soon(store.holds_read.notified()).await;

    store.set_hold(&destination, true).await.unwrap();
    parts.limits.set_holds(parts.limits.ask_holds(), [destination.clone()].into());
    store.holds_gate.add_permits(1);
    // The next look begins when that one is over.
    soon(store.holds_read.notified()).await;
    assert_eq!(parts.limits.free(&destination, Default::default()), 0);
}
