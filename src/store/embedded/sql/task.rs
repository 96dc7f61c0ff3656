//! `task`: content.

pub(crate) static INSERT: &str = "INSERT INTO task (id, lane, destination, due, created, options, \
    content) VALUES (?, ?, ?, ?, ?, ?, ?)";
pub(crate) static INSERT_CALL: &str =
    "INSERT OR IGNORE INTO task (id, lane, destination, due, created, options, content)
     VALUES (?, ?, ?, ?, ?, ?, ?)";
pub(crate) static OPTIONS: &str = "SELECT options FROM task WHERE id = ?";
pub(crate) static OPTIONS_IF_ANY: &str =
    "SELECT options FROM task WHERE id = ? AND options IS NOT NULL";
pub(crate) static SET_OPTIONS: &str = "UPDATE task SET options = ? WHERE id = ?";
pub(crate) static RESCHEDULE: &str =
    "UPDATE task SET due = ?, destination = ?, content = ifnull(?, content) WHERE id = ?";
pub(crate) static PUSH_BACK: &str =
    "UPDATE task SET due = ?, destination = ?, options = ?, content = ? WHERE id = ?";

rows! {
    /// A task that was never claimed.
    fresh: "SELECT " [lane, destination, due, options] " FROM task WHERE id = ?";

    replayed: "UPDATE task SET due = ?1 WHERE id = ?2 RETURNING " [destination, options] "";

    deleted: "DELETE FROM task WHERE id = ? RETURNING " [options, destination] "";

    /// The parts of a dead-letter call.
    dead: "SELECT " [topic = "l.topic", shard = "l.shard", content = "t.content"]
        " FROM task t JOIN lane l ON l.id = t.lane WHERE t.id = ?";

    /// The lane of a task.
    home: "SELECT " [topic = "l.topic", shard = "l.shard"]
        " FROM task t JOIN lane l ON l.id = t.lane WHERE t.id = ?";

    /// A task whose content is removed or compared.
    with_content: "SELECT " [created, due, options, content] " FROM task WHERE id = ?";

    /// Whether an adopted task is the same as the stored one.
    same: "SELECT " [lane, is_same = "created = ? AND due = ? AND content = ?", options]
        " FROM task WHERE id = ?";
}

/// A task as people read it, and further columns.
macro_rules! read {
    ($name:ident [$($more:tt)*]) => {
        rows! {
            $name: "SELECT " [
                destination = "d.name", stored_due = "t.due", created = "t.created",
                options = "t.options",
                leased = "p.leased", due = "p.due", state = "h.state", finished = "h.finished",
                attempts = "coalesce(p.attempts, h.attempts, 0)",
                outcome = "coalesce(p.outcome, h.outcome, '')",
                lease = "p.lease", returns = "p.returns", $($more)*
            ] " FROM task t
             JOIN destination d ON d.id = t.destination
             LEFT JOIN progress p ON p.id = t.id
             LEFT JOIN history h ON h.id = t.id WHERE t.id = ? AND t.lane = ?";
        }
    };
}
read!(summary []);
// The columns of `summary`, and the content, which is read only if it is asked for.
read!(whole [content = "t.content", cancelling = "coalesce(p.cancelling, 0)"]);

// For a check.
rows! {
    /// One task across all tables.
    checked: "SELECT " [
        id = "t.id", lane = "t.lane", destination = "t.destination", due = "t.due",
        topic = "l.topic", shard = "l.shard", shards = "tp.shards", destination_lane = "d.lane",
        progress_lane = "p.lane", progress_destination = "p.destination", leased = "p.leased",
        progress_due = "p.due",
        progress_attempts = "p.attempts", expiries = "p.expiries", cancelling = "p.cancelling <> 0",
        progress_current = "p.current", progress_past = "p.past",
        history_lane = "h.lane", state = "h.state", finished = "h.finished",
        history_attempts = "h.attempts",
        history_current = "h.current", history_past = "h.past",
        waits = "EXISTS (SELECT 1 FROM schedule s
                            WHERE s.destination = t.destination AND s.due = ifnull(p.due, t.due) \
                            AND s.id = t.id)",
    ] " FROM task t
             LEFT JOIN lane l ON l.id = t.lane
             LEFT JOIN topic tp ON tp.name = l.topic
             LEFT JOIN destination d ON d.id = t.destination
             LEFT JOIN progress p ON p.id = t.id
             LEFT JOIN history h ON h.id = t.id
             WHERE t.id > ? ORDER BY t.id LIMIT ?";

    /// When a task expires, by its options and by what is listed.
    expiring: "SELECT " [
        id = "t.id", lane = "t.lane", due = "t.due", options = "t.options",
        has_progress = "p.id IS NOT NULL", expires = "p.expires",
        waits = "ifnull(p.leased, 0) = 0 AND h.id IS NULL",
        topic = "l.topic", shard = "l.shard",
    ] " FROM task t LEFT JOIN progress p ON p.id = t.id LEFT JOIN history h ON h.id = t.id \
        LEFT JOIN lane l ON l.id = t.lane
         WHERE t.id > ? ORDER BY t.id LIMIT ?";
}
pub(crate) static REMOVE_CONTENT: &str = "UPDATE task SET options = ?, content = '' WHERE id = ?";
pub(crate) static DUE: &str = "SELECT due FROM task WHERE id = ?";
pub(crate) static SET_DUE: &str = "UPDATE task SET due = ? WHERE id = ?";
