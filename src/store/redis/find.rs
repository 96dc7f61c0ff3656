//! `find`: the task that an id, a key or an idempotency key names. One script looks in many lanes.

use deadpool_redis::redis::Value;

use super::answer::{corrupt, text};
use super::poll::{LANES_A_SCRIPT, LanesScript, ask_lanes};
use super::script;
use super::session::Session;
use crate::model::task::{Lane, TaskId};
use crate::store::{Error, Result, TaskName};

const FIND: LanesScript = (&script::FIND, LANES_A_SCRIPT);

impl Session {
    pub(crate) async fn find(
        &self,
        name: &TaskName,
        lanes: Vec<Lane>,
    ) -> Result<Vec<Option<TaskId>>> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let asked = format!("{} {}", kind_of(name), name.text());
        // A call that names a task by its key looks into one lane, `find` into those of all topics.
        let route = if lanes.len() == 1 { &self.working } else { &self.reading };
        let told = ask_lanes(self, route, &[], FIND, &[(&asked, &lanes)], read_id).await.1;
        let (_, found) = told.into_iter().next().unwrap_or_else(|| Err(corrupt("too little")))?;
        let answered = |found: Option<Option<TaskId>>| {
            found.ok_or_else(|| Error::Unavailable("the server of a lane does not answer".into()))
        };
        found.into_iter().map(answered).collect()
    }
}

/// The kind of a name, as the scripts know it.
pub(super) fn kind_of(name: &TaskName) -> &'static str {
    match name {
        TaskName::Id(_) => "id",
        TaskName::Key(_) => "key",
        TaskName::Idempotency { .. } => "idempotency",
    }
}

/// An id; an empty text means none.
fn read_id(told: Value) -> Result<Option<TaskId>> {
    match text(told)?.as_str() {
        "" => Ok(None),
        id => id.parse().map(Some).map_err(corrupt),
    }
}
