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
    /// One task across all tables. Its entry is its row of `history`, otherwise that of `progress`.
    checked: "SELECT " [
        id = "t.id", lane = "t.lane", destination = "t.destination", due = "t.due",
        topic = "l.topic", shard = "l.shard",
        is_foreign = "d.lane IS NOT t.lane",
        is_misplaced = "ifnull(tp.shards > 0 AND t.id % tp.shards <> l.shard, 0)",
        has_progress = "p.id IS NOT NULL",
        waits_for = "ifnull(p.due, t.due)",
        stands = "h.id IS NULL AND EXISTS (SELECT 1 FROM schedule s WHERE s.id = t.id
            AND s.destination = t.destination AND s.due = ifnull(p.due, t.due))",
        lanes_differ = "ifnull(ifnull(h.lane, p.lane) <> t.lane, 0)",
        // An end that cannot be read: dead tasks are kept, and never called by themselves.
        state = "iif(h.id IS NULL OR h.state BETWEEN 2 AND 5, h.state, 3)",
        finished = "h.finished",
        attempts = "coalesce(h.attempts, p.attempts, 0)",
        is_unreadable = "ifnull(h.state NOT BETWEEN 2 AND 5
            OR h.attempts NOT BETWEEN 0 AND 4294967295,
            ifnull(p.leased NOT BETWEEN 0 AND 1 OR p.attempts NOT BETWEEN 0 AND 4294967295
            OR p.expiries NOT BETWEEN 0 AND 4294967295, 0))",
        current = "iif(h.id IS NULL, p.current, h.current)",
        past = "iif(h.id IS NULL, p.past, h.past)",
        outcome = "iif(h.id IS NULL, p.outcome, h.outcome)",
        pending = pending_columns!(),
    ] " FROM task t
             LEFT JOIN lane l ON l.id = t.lane
             LEFT JOIN topic tp ON tp.name = l.topic
             LEFT JOIN destination d ON d.id = t.destination
             LEFT JOIN progress p ON p.id = t.id
             LEFT JOIN history h ON h.id = t.id
             WHERE t.id > ? ORDER BY t.id LIMIT ?";
}
pub(crate) static REMOVE_CONTENT: &str = "UPDATE task SET options = ?, content = '' WHERE id = ?";
pub(crate) static DUE: &str = "SELECT due FROM task WHERE id = ?";
pub(crate) static SET_DUE: &str = "UPDATE task SET due = ? WHERE id = ?";
