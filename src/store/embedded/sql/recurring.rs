//! `recurring`: recurring schedules. The table is created with the first one.

pub(crate) static EXISTS: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'recurring'";
/// `state` is JSON; `look` is when a planner looks at the schedule again: null while it is paused,
/// `LAST_MOMENT` after its end.
pub(crate) static CREATE: &str = "CREATE TABLE recurring (
    topic TEXT NOT NULL, shard INTEGER NOT NULL, name TEXT NOT NULL, look INTEGER,
    state TEXT NOT NULL, definition TEXT NOT NULL, PRIMARY KEY (topic, shard, name)) STRICT";
pub(crate) static CREATE_INDEX: &str =
    "CREATE INDEX recurring_by_look ON recurring (topic, shard, look) WHERE look IS NOT NULL";
pub(crate) static PUT: &str = "INSERT OR REPLACE INTO recurring (topic, shard, name, look, state, \
    definition) VALUES (?, ?, ?, ?, ?, ?)";
pub(crate) static DELETE: &str = "DELETE FROM recurring WHERE topic = ? AND shard = ? AND name = ?";
pub(crate) static COUNT: &str = "SELECT count(*) FROM recurring WHERE topic = ? AND shard = ?";
pub(crate) static LANE_HAS: &str = "SELECT 1 FROM recurring WHERE topic = ? AND shard = ?";
pub(crate) static TOPIC_HAS: &str = "SELECT EXISTS (SELECT 1 FROM recurring WHERE topic = ?)";
pub(crate) static TOPICS: &str = "SELECT DISTINCT topic FROM recurring";
pub(crate) static NAMES: &str = "SELECT name FROM recurring WHERE topic = ? AND shard = ? \
    AND name > ? ORDER BY name LIMIT ?";
pub(crate) static DUE: &str = "SELECT name FROM recurring WHERE topic = ? AND shard = ? \
    AND look IS NOT NULL AND look <= ? ORDER BY look, name LIMIT ? OFFSET ?";
pub(crate) static EARLIEST: &str = "SELECT min(look) FROM recurring WHERE topic = ? \
    AND shard = ? AND look IS NOT NULL AND look < ?";
#[cfg(test)]
pub(crate) static GARBLE: &str = "UPDATE recurring SET state = 'garbled' WHERE name = ?";
/// The overflow is an error that says nothing about the file, unlike RAISE.
#[cfg(test)]
pub(crate) static REFUSE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON recurring \
    WHEN NEW.name = 'refused' BEGIN SELECT abs(-9223372036854775807 - 1); END";
pub(crate) static SET_LOOK: &str =
    "UPDATE recurring SET look = ? WHERE topic = ? AND shard = ? AND name = ?";

rows! {
    /// With the columns of `lane::last`.
    last: "SELECT " [topic, shard = "max(shard)"] " FROM recurring GROUP BY topic";

    /// Schedules for a check, in order.
    checked: "SELECT " [topic, shard, name, look, state, definition]
        " FROM recurring WHERE (topic, shard, name) > (?, ?, ?)
        ORDER BY topic, shard, name LIMIT ?";

    stored: "SELECT " [look, state, definition]
        " FROM recurring WHERE topic = ? AND shard = ? AND name = ?";
}
