//! `task_key`: which task owns a key.

pub(crate) static PUT: &str =
    "INSERT OR REPLACE INTO task_key (lane, key, task, since) VALUES (?, ?, ?, ?)";
pub(crate) static SINCE: &str =
    "SELECT since FROM task_key WHERE lane = ? AND key = ? AND task = ?";
pub(crate) static DELETE_OF_TASK: &str =
    "DELETE FROM task_key WHERE lane = ? AND key = ? AND task = ?";
pub(crate) static DELETE_OF_TOPIC: &str =
    "DELETE FROM task_key WHERE lane IN (SELECT id FROM lane WHERE topic = ?)";

rows! {
    owner: "SELECT " [task, since] " FROM task_key WHERE lane = ? AND key = ?";
}
