//! `owed_call`: dead tasks whose dead-letter calls found no room.

pub(crate) static INSERT: &str = "INSERT OR IGNORE INTO owed_call (lane, task) VALUES (?, ?)";
pub(crate) static OF_LANE: &str = "SELECT task FROM owed_call WHERE lane = ? LIMIT ?";
pub(crate) static DELETE: &str = "DELETE FROM owed_call WHERE lane = ? AND task = ?";
pub(crate) static DELETE_OF_TOPIC: &str =
    "DELETE FROM owed_call WHERE lane IN (SELECT id FROM lane WHERE topic = ?)";
