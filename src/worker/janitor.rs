//! Keeping house: old history is forgotten, and the registry is looked after.
//!
//! Nothing hangs on its life: leases are swept by claims, and a lost registry entry is written again by the next add.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::callback::Caller;
use crate::clock::UnixMillis;
use crate::store::{Registered, Result, Store};
use crate::task::{Lane, State};

/// The time between two rounds.
const ROUND: Duration = Duration::from_secs(60);
/// Rounds between two searches for lanes that nobody registered.
const ROUNDS_A_SEARCH: u32 = 10;
/// The most tasks forgotten by one call.
const CHUNK: usize = 500;

/// Runs until the instance stops. The first round comes at once.
pub(super) async fn run(shared: Arc<Shared<impl Store, impl Caller>>) {
    let mut round = 0_u32;
    while !shared.stopping.is_cancelled() {
        tokio::select! {
            biased;
            done = keep_house(&shared, round) => match done {
                Ok(()) => round = round.wrapping_add(1),
                Err(error) => tracing::debug!(%error, "Could not keep house; trying again in a minute"),
            },
            () = shared.stopping.cancelled() => return,
        }
        let _ = tokio::time::timeout(ROUND, shared.stopping.cancelled()).await;
    }
}

async fn keep_house(shared: &Shared<impl Store, impl Caller>, round: u32) -> Result<()> {
    let Shared { parts, params, .. } = shared;
    // What this instance knows goes into the registry, should it have been lost; then what others know comes out.
    for known in parts.topics.known() {
        parts.store.register(known.entry).await?;
    }
    parts.topics.learn(&parts.store.topics().await?);
    if round.is_multiple_of(ROUNDS_A_SEARCH) {
        let found = parts.store.recover_topics().await?;
        for entry in &found {
            tracing::warn!(topic = %entry.topic, "Topic {} holds tasks but was not registered; it is again", entry.topic);
        }
        parts.topics.learn(&found.into_iter().map(Registered::plain).collect::<Vec<_>>());
    }
    // Not by a ping, which may wait for replicas.
    let before = parts.store.next_due(Vec::new()).await?.now - params.keep;
    for lane in parts.topics.known().iter().flat_map(|known| known.entry.lanes()) {
        // A lane whose server is away keeps its history for a minute more; the others do not wait for it.
        if let Err(error) = forget(&*parts.store, &lane, before).await {
            tracing::debug!(%lane, %error, "Could not forget what ended long ago");
        }
    }
    Ok(())
}

async fn forget(store: &impl Store, lane: &Lane, before: UnixMillis) -> Result<()> {
    for state in [State::Delivered, State::Cancelled, State::Expired] {
        while store.purge(lane, state, before, CHUNK).await? == CHUNK {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
