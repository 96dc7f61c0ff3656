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

// For a check.
rows! {
    checked: "SELECT " [
        lane = "k.lane", key = "k.key", task_lane = "t.lane", options = "t.options",
        topic = "l.topic", shard = "l.shard",
    ] " FROM task_key k LEFT JOIN task t ON t.id = k.task LEFT JOIN lane l ON l.id = k.lane
         WHERE (k.lane, k.key) > (?, ?) ORDER BY k.lane, k.key LIMIT ?";
}
pub(crate) static DELETE: &str = "DELETE FROM task_key WHERE lane = ? AND key = ?";
