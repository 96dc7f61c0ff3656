//! Whether the store answers.

use std::sync::Arc;

use deadpool_redis::redis::cmd;
use tokio::time::Instant;

use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::store::{Error, Result};

/// One at a time: who comes meanwhile gets the answer of the one under way. Where replicas are
/// waited for and missing, waits that stand behind each other on the connection would look as if
/// the server were silent. It goes on though its caller has gone, so that the next one is not sent
/// behind it.
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

/// Asks the server that has the id counter, on both ways: a store that answers questions but takes
/// no tasks is not well.
async fn ping_alone(session: &Session) -> Result<UnixMillis> {
    let counter = || cmd("EXISTS").arg(session.keys.last_id()).take();
    session.adding.run_one(counter()).await?;
    session.working.run_one(counter()).await?;
    session.now().await
}
