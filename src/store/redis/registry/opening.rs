//! Opens lanes to the tasks of a topic (`lua/lib/open.lua`), by the number of lanes in the
//! registry.
//!
//! ```text
//! add ──▶ lane: closed, token ──▶ registry: still this number of lanes?
//!     ──▶ add with the token ──▶ lane: open, and the tasks are stored
//! ```
//!
//! The registry and the lanes may be on different servers, so no script sees both. The deletion of
//! a topic goes the other way. It announces itself in the registry (`lua/depart.lua`) and closes
//! each lane (`lua/leave.lua`). Then it removes the entry, unless the topic was registered again
//! meanwhile (`lua/unregister.lua`). So while a lane is open with a number of lanes, the registry
//! holds that number.

use std::collections::{HashMap, HashSet};

use deadpool_redis::redis::{FromRedisValue, Value};

use super::entry;
use crate::store::redis::answer::{corrupt, text};
use crate::store::redis::session::Session;
use crate::store::{Error, Result, TopicEntry};

/// How often refused calls are sent again.
pub(crate) const ATTEMPTS: usize = 3;

/// Why a lane stored nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LaneRefusal {
    /// The lane is closed. This token opens it, once the registry has confirmed the number of
    /// lanes.
    Closed(String),
    /// The lane holds tasks of a topic with another number of lanes.
    Stale,
}

/// The fields of a script's answer, from `now` on; or the lane's refusal.
pub(crate) fn read(
    reply: Value,
) -> Result<std::result::Result<std::vec::IntoIter<Value>, LaneRefusal>> {
    let fields = Vec::<Value>::from_redis_value(reply).map_err(corrupt)?;
    match fields.first() {
        Some(Value::Int(_)) => Ok(Ok(fields.into_iter())),
        _ => read_refusal(fields).map(Err),
    }
}

/// Reads what `lua/lib/open.lua` answers for a lane that is not open.
pub(crate) fn read_refusal(fields: Vec<Value>) -> Result<LaneRefusal> {
    let [word, detail] = <[Value; 2]>::try_from(fields).map_err(|_| corrupt("no refusal"))?;
    match text(word)?.as_str() {
        "closed" => Ok(LaneRefusal::Closed(text(detail)?)),
        "stale" => Ok(LaneRefusal::Stale),
        other => Err(corrupt(other)),
    }
}

/// The number of lanes as an argument of the scripts.
pub(crate) fn argument(shards: u16, token: Option<&str>) -> String {
    match token {
        None => shards.to_string(),
        Some(token) => format!("{shards} {token}"),
    }
}

/// What the registry says about the topics of refused calls.
pub(crate) struct Confirmed {
    /// `Ok`: the registry has this number of lanes; calls may be sent again, with their tokens.
    pub(crate) entries: HashMap<TopicEntry, Result<()>>,
    /// Entries that the registry confirms and a lane contradicts: a failover has lost a write of
    /// one of them. They stand among `entries` as [`Error::StaleEntry`].
    pub(crate) contradicted: Vec<TopicEntry>,
}

/// Asks the registry about the topics of calls that lanes refused.
pub(crate) async fn confirm<'a>(
    session: &Session,
    refused: impl Iterator<Item = (&'a TopicEntry, &'a LaneRefusal)>,
) -> Confirmed {
    let mut stale: HashSet<&TopicEntry> = HashSet::new();
    let mut entries: HashSet<&TopicEntry> = HashSet::new();
    for (entry, refusal) in refused {
        entries.insert(entry);
        if *refusal == LaneRefusal::Stale {
            stale.insert(entry);
        }
    }
    let entries: Vec<&TopicEntry> = entries.into_iter().collect();
    let asserted = entry::assert_all(session, &entries).await;
    let mut confirmed = Confirmed { entries: HashMap::new(), contradicted: Vec::new() };
    for (entry, asserted) in entries.into_iter().zip(asserted) {
        let confirmation = match asserted {
            Err(error) => {
                warn(entry, &error);
                Err(error)
            }
            Ok(actual) if actual != *entry => Err(Error::StaleEntry),
            Ok(_) if stale.contains(entry) => {
                confirmed.contradicted.push(entry.clone());
                Err(Error::StaleEntry)
            }
            Ok(_) => Ok(()),
        };
        confirmed.entries.insert(entry.clone(), confirmation);
    }
    confirmed
}

/// Logs that the registry could not be asked about a topic.
pub(crate) fn warn(TopicEntry { topic, .. }: &TopicEntry, error: &Error) {
    tracing::warn!(%topic, %error, "Could not ask the topic registry");
}
