//! The heartbeats of instances, in a hash beside the registry. A heartbeat goes with the poll of
//! each second.

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};

use super::answer::corrupt;
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::store::{Instance, Result};

/// The command that sends a heartbeat, if there is one, and reads all.
pub(super) fn beat(session: &Session, own: Option<&Instance>) -> Cmd {
    let said = own.and_then(|own| Some((own.id.as_str(), serde_json::to_string(own).ok()?)));
    let (id, said) = said.unwrap_or_default();
    session.call(&script::HEARTBEAT, &[session.keys.instances()]).arg(id).arg(said).take()
}

/// Reads the answer to [`beat`], sorted by name. One that cannot be read, such as that of a later
/// version, is left out.
pub(super) fn read(answer: Value) -> Result<Vec<Instance>> {
    let told = Vec::<(i64, String)>::from_redis_value(answer).map_err(corrupt)?;
    let read = |(seen, said): (i64, String)| {
        let instance: Instance = serde_json::from_str(&said).ok()?;
        Some(Instance { seen: UnixMillis(seen), ..instance })
    };
    let mut living: Vec<Instance> = told.into_iter().filter_map(read).collect();
    living.sort_unstable_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
    Ok(living)
}

/// The instances that have sent a heartbeat lately.
pub(super) async fn living(session: &Session) -> Result<Vec<Instance>> {
    read(session.working.run_one(beat(session, None)).await?)
}

impl Session {
    pub(crate) async fn forget_instance(&self, id: &str) -> Result<()> {
        let forget = cmd("HDEL").arg(self.keys.instances()).arg(id).take();
        self.working.run_one(forget).await.map(drop)
    }
}
