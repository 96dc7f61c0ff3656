//! `expiry`: waiting tasks that are not worth delivering from a moment on.

pub(crate) static INSERT: &str = "INSERT OR IGNORE INTO expiry (lane, moment, id) VALUES (?, ?, ?)";
pub(crate) static DELETE: &str = "DELETE FROM expiry WHERE lane = ? AND moment = ? AND id = ?";
pub(crate) static EARLIEST: &str =
    "SELECT moment FROM expiry WHERE lane = ? ORDER BY moment LIMIT 1";

rows! {
    over: "SELECT " [moment, id]
        " FROM expiry WHERE lane = ? AND moment <= ? ORDER BY moment, id LIMIT ?";
}

// For a check.
pub(crate) static IS_LISTED: &str = "SELECT 1 FROM expiry WHERE lane = ? AND moment = ? AND id = ?";
rows! {
    checked: "SELECT " [
        lane = "e.lane", moment = "e.moment", id = "e.id", task_lane = "t.lane", due = "t.due",
        options = "t.options",
        waits = "ifnull(p.leased, 0) = 0 AND h.id IS NULL", topic = "l.topic", shard = "l.shard",
    ] " FROM expiry e LEFT JOIN task t ON t.id = e.id LEFT JOIN progress p ON p.id = e.id
         LEFT JOIN history h ON h.id = e.id LEFT JOIN lane l ON l.id = e.lane
         WHERE (e.lane, e.moment, e.id) > (?, ?, ?) ORDER BY e.lane, e.moment, e.id LIMIT ?";
}
