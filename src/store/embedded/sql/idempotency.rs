//! `idempotency`: the answers of idempotency keys.

pub(crate) static PUT: &str = "INSERT OR REPLACE INTO idempotency (lane, key, fingerprint, task, \
    due, until) VALUES (?, ?, ?, ?, ?, ?)";
/// Deletes those whose window has ended, the earliest first.
pub(crate) static DELETE_OVER: &str = "DELETE FROM idempotency WHERE lane = ?1 AND key IN
                 (SELECT key FROM idempotency WHERE lane = ?1 AND until <= ?2 ORDER BY until \
                 LIMIT ?3)";
pub(crate) static DELETE_OF_LANE: &str = "DELETE FROM idempotency WHERE lane = ?";
pub(crate) static DELETE_OF_TOPIC: &str =
    "DELETE FROM idempotency WHERE lane IN (SELECT id FROM lane WHERE topic = ?)";

rows! {
    /// The first add, if its window has not ended.
    answer: "SELECT " [fingerprint, task, due]
        " FROM idempotency WHERE lane = ? AND key = ? AND until > ?";
}
