//! Opening lanes to the tasks of a topic (`lua/open.lua`), with what the registry says of the
//! topic.
//!
//! ```text
//! add ──▶ lane: closed, token ──▶ registry: still so many lanes?
//!     ──▶ add with the token ──▶ lane: open, and the tasks are stored
//! ```
//!
//! The registry and the lanes may lie on several servers, so no script sees both. A topic's
//! deletion goes the other way: it announces itself in the registry (`lua/depart.lua`), closes each
//! lane (`lua/leave.lua`), and then removes the entry unless the topic was registered again
//! meanwhile (`lua/unregister.lua`). So while a lane is open to a number of lanes, the registry
//! holds that number.

use std::collections::{HashMap, HashSet};

use deadpool_redis::redis::{FromRedisValue, Value};

use super::entry;
use super::reconcile;
use crate::store::redis::Inner;
use crate::store::redis::answer::corrupt;
use crate::store::{Error, Result, TopicEntry};

/// How often calls are sent again that lanes have refused.
pub(crate) const ATTEMPTS: usize = 3;

/// Why a lane has stored nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is not open. With this token it will be, once the registry has confirmed the number of
    /// lanes.
    Closed(String),
    /// It holds tasks of a topic with another number of lanes.
    Stale,
}

/// The fields of what a script has answered, after `now`; or the lane's refusal.
pub(crate) fn read(
    reply: Value,
) -> Result<std::result::Result<std::vec::IntoIter<Value>, Refusal>> {
    let mut fields = Vec::<Value>::from_redis_value(reply).map_err(corrupt)?.into_iter();
    match fields.as_slice().first() {
        Some(Value::Int(_)) => Ok(Ok(fields)),
        _ => {
            match (
                crate::store::redis::answer::text(fields.next().unwrap_or_default())?.as_str(),
                fields.next(),
            ) {
                ("closed", Some(token)) => {
                    Ok(Err(Refusal::Closed(crate::store::redis::answer::text(token)?)))
                }
                ("stale", Some(_)) => Ok(Err(Refusal::Stale)),
                (other, _) => Err(corrupt(other)),
            }
        }
    }
}

/// The number of lanes as the scripts are told it.
pub(crate) fn argument(shards: u16, token: Option<&str>) -> String {
    match token {
        None => shards.to_string(),
        Some(token) => format!("{shards} {token}"),
    }
}

/// Asks the registry about the topics of calls that were refused. An entry that is `Ok` was
/// confirmed: its calls may be sent again, with their tokens.
pub(crate) async fn confirm<'a>(
    inner: &Inner,
    refused: impl Iterator<Item = (&'a TopicEntry, &'a Refusal)>,
) -> HashMap<TopicEntry, Result<()>> {
    let mut stale: HashSet<&TopicEntry> = HashSet::new();
    let mut entries: HashSet<&TopicEntry> = HashSet::new();
    for (entry, refusal) in refused {
        entries.insert(entry);
        if *refusal == Refusal::Stale {
            stale.insert(entry);
        }
    }
    let entries: Vec<&TopicEntry> = entries.into_iter().collect();
    let asserted = entry::assert_all(inner, &entries).await;
    let mut confirmed = HashMap::with_capacity(entries.len());
    for (entry, asserted) in entries.into_iter().zip(asserted) {
        let confirmation = match asserted {
            Err(error) => Err(error),
            Ok(actual) if actual != *entry => Err(Error::StaleEntry),
            // The lane contradicts the registry: a failover has lost something of one of them.
            Ok(_) if stale.contains(entry) => {
                match Box::pin(reconcile::reconcile(inner, &entry.topic)).await {
                    Ok(_) => Err(Error::StaleEntry),
                    Err(error) => Err(error),
                }
            }
            Ok(_) => Ok(()),
        };
        if let Err(error) = &confirmation
            && !matches!(error, Error::StaleEntry)
        {
            tracing::warn!(topic = %entry.topic, %error, "Could not ask the topic registry");
        }
        confirmed.insert(entry.clone(), confirmation);
    }
    confirmed
}
