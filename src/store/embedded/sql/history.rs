//! `history`: tasks that ended.

pub(crate) static PUT: &str = "INSERT INTO history (id, lane, state, finished, attempts, current, \
    past, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (id) DO UPDATE SET lane = excluded.lane, state = excluded.state, \
     finished = excluded.finished, attempts = excluded.attempts,
         current = excluded.current, past = excluded.past, outcome = excluded.outcome";
pub(crate) static DELETE: &str = "DELETE FROM history WHERE id = ?";
pub(crate) static HAS_ENDED: &str = "SELECT 1 FROM history WHERE id = ?1 AND lane = ?2 \
    AND state = ?3 AND (?4 IS NULL OR ifnull(outcome, '') = ?4)";
pub(crate) static IDS: &str = "SELECT id FROM history WHERE lane = ? LIMIT ?";
pub(crate) static IDS_BEFORE: &str = "SELECT id FROM history WHERE lane = ? AND state = ? \
    AND finished < ? ORDER BY finished, id LIMIT ?";

rows! {
    ended: "SELECT " [lane, state, finished, attempts, current, past, outcome]
        " FROM history WHERE id = ?";

    /// A page of a list.
    page: "SELECT " [moment = "finished", id] " FROM history WHERE lane = ? AND state = ?
             AND (finished, id) > (?, ?) AND finished <= ? ORDER BY finished, id LIMIT ?";

    /// The same, the latest first.
    page_back: "SELECT " [moment = "finished", id] " FROM history WHERE lane = ? AND state = ?
             AND (finished, id) < (?, ?) AND finished >= ? ORDER BY finished DESC, id DESC LIMIT ?";
}

// For a check.
rows! {
    strays: "SELECT " [
        id = "h.id", has_body = "t.id IS NOT NULL", leased = "0", topic = "l.topic",
        shard = "l.shard",
    ] " FROM history h LEFT JOIN task t ON t.id = h.id LEFT JOIN lane l ON l.id = h.lane
                  WHERE h.id > ? ORDER BY h.id LIMIT ?";
}
pub(crate) static SET_LANE: &str = "UPDATE history SET lane = ? WHERE id = ?";
pub(crate) static SET_FINISHED: &str = "UPDATE history SET finished = ? WHERE id = ?";
pub(crate) static MEND: &str =
    "UPDATE history SET state = ?, attempts = ?, current = ?, past = ? WHERE id = ?";
/// Ends a task whose progress says how far it has come.
pub(crate) static END: &str =
    "INSERT OR REPLACE INTO history (id, lane, state, finished, attempts, current, past, outcome)
                   SELECT id, ?, ?, ?, attempts, current, NULL, outcome FROM progress WHERE id = ?";
