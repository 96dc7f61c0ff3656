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
