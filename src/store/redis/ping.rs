//! Whether the store answers.

use std::sync::Arc;

use deadpool_redis::redis::cmd;
use tokio::time::Instant;

use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::store::{Error, Result};

/// The store's now, as a sign that it answers. There is one ping at a time, and callers that arrive
/// meanwhile share its answer. Otherwise, if replicas were missing, pings that wait behind each
/// other on the connection would look like a silent server. A ping continues after its caller has
/// left, for the same reason.
pub(super) async fn ping(session: &Arc<Session>) -> Result<UnixMillis> {
    let (session, arrived) = (session.clone(), Instant::now());
    let pinging = tokio::spawn(async move {
        let mut last = session.pinged.lock().await;
        match &*last {
            Some((ended, answer)) if *ended >= arrived => answer.clone(),
            _ => {
                let answer = ping_alone(&session).await;
                *last = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    });
    pinging.await.unwrap_or_else(|_| Err(Error::Unavailable("the store is closed".into())))
}

/// Asks the server of the id counter, through both kinds of connections: a store that answers reads
/// but accepts no tasks is not healthy.
async fn ping_alone(session: &Session) -> Result<UnixMillis> {
    let counter = || cmd("EXISTS").arg(session.keys.last_id()).take();
    session.adding.run_one(counter()).await?;
    session.working.run_one(counter()).await?;
    session.now().await
}
