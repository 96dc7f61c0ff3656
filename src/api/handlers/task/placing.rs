//! Placing tasks in the lanes of their topics, and placing them again if this instance knew an old
//! number of lanes.

use std::collections::HashSet;

use futures_util::future::join_all;

use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::model::task::Topic;

/// How often a task is placed in all.
pub(crate) const PLACINGS: usize = 3;

/// Stores what `read` answers by `store`. Tasks of which nothing was stored because their topic's
/// entry was an old one are read and stored again by the new entry. The body is read once more
/// for that, instead of being copied each time.
///
/// # Errors
/// Those of `read` and `store`, and that the registry does not answer.
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
