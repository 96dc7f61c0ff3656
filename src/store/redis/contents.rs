//! Removes the contents of ended tasks.

use deadpool_redis::redis::FromRedisValue;

use super::answer::corrupt;
use super::script;
use super::session::Session;
use crate::model::task::{Lane, TaskId};
use crate::store::Result;

/// The most ids of one script call.
const MOST: usize = 500;
/// The most bytes of records that one script call reads.
const MOST_BYTES: usize = 1 << 20;

impl Session {
    pub(crate) async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> {
        let mut ids = ids;
        while !ids.is_empty() {
            let mut call = self.lane_call(&script::REMOVE_CONTENTS, lane);
            call.arg(MOST_BYTES);
            ids.iter().take(MOST).for_each(|id| {
                call.arg(id.0);
            });
            let seen = usize::from_redis_value(self.working.run_one(call).await?);
            ids = ids.get(seen.map_err(corrupt)?.max(1)..).unwrap_or_default();
        }
        Ok(())
    }
}
