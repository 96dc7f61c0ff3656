//! Assigns tasks to lanes, and repeats that if this instance had an outdated number of lanes.

use std::collections::HashSet;

use futures_util::future::join_all;

use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::model::task::Topic;

/// How often a task is placed at most.
pub(crate) const PLACINGS: usize = 3;

/// Calls `read`, and then `store` with its results. Tasks that were refused because their topic's
/// entry was outdated are read and stored again, after the entry has been reloaded. Reading the
/// body again is cheaper than copying it each time.
///
/// # Errors
/// Those of `read` and `store`, and a registry that does not respond.
pub(crate) async fn placed<C, T, Reading, Storing>(
    api: &Api,
    read: impl Fn() -> Reading,
    store: impl Fn(Vec<Result<C, Error>>) -> Storing,
    topic: impl Fn(&C) -> &Topic,
) -> Result<Vec<Result<T, Error>>, Error>
where
    Reading: Future<Output = Result<Vec<Result<C, Error>>, Error>>,
    Storing: Future<Output = Result<Vec<Result<T, Error>>, Error>>,
{
    let mut results = store(read().await?).await?;
    for _ in 1..PLACINGS {
        let is_stale = |i: &usize| results[*i].as_ref().is_err_and(Error::is_stale_entry);
        let stale: HashSet<usize> = (0..results.len()).filter(is_stale).collect();
        if stale.is_empty() {
            break;
        }
        let read = read().await?.into_iter().enumerate();
        let (places, again): (Vec<usize>, Vec<_>) = read.filter(|(i, _)| stale.contains(i)).unzip();
        let topics: HashSet<&Topic> = again.iter().flatten().map(&topic).collect();
        for reloaded in join_all(topics.into_iter().map(|topic| api.topics.reload(topic))).await {
            reloaded?;
        }
        places.into_iter().zip(store(again).await?).for_each(|(i, result)| results[i] = result);
    }
    Ok(results)
}
