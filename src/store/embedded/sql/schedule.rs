//! `schedule`: waiting tasks.

// A row that exists already is not an error.
pub(crate) static INSERT: &str =
    "INSERT OR IGNORE INTO schedule (destination, due, id) VALUES (?, ?, ?)";
pub(crate) static DELETE: &str =
    "DELETE FROM schedule WHERE destination = ? AND due = ? AND id = ?";
pub(crate) static DELETE_UP_TO: &str =
    "DELETE FROM schedule WHERE destination = ? AND (due, id) <= (?, ?)";
/// The ids of the due tasks of a destination.
pub(crate) static DUE_IDS: &str =
    "SELECT id FROM schedule WHERE destination = ? AND due <= ? ORDER BY due, id";
/// The earliest moment of a destination after another.
pub(crate) static EARLIEST_AFTER: &str =
    "SELECT min(due) FROM schedule WHERE destination = ? AND due > ?";
pub(crate) static EARLIEST: &str = "SELECT min(due) FROM schedule WHERE destination = ?";
/// How many tasks of a destination fall due after a moment and by another, up to a limit.
pub(crate) static COUNT_WITHIN: &str = "SELECT count(*) FROM \
    (SELECT 1 FROM schedule WHERE destination = ? AND due > ? AND due <= ? LIMIT ?)";

rows! {
    /// The due tasks of a destination.
    due: "SELECT " [
        id = "s.id", body_due = "t.due", created = "t.created", options = "t.options",
        content = "t.content", due = "s.due",
        pending = pending_columns!(),
    ] " FROM schedule s LEFT JOIN task t ON t.id = s.id LEFT JOIN progress p ON p.id = s.id
         WHERE s.destination = ? AND s.due <= ? ORDER BY s.due, s.id LIMIT ?";

    /// The tasks of a destination that fell due within a span of time.
    due_within: "SELECT " [
        id = "s.id", due = "s.due", body_due = "t.due", options = "t.options",
        pending = pending_columns!(),
    ] " FROM schedule s LEFT JOIN task t ON t.id = s.id LEFT JOIN progress p ON p.id = s.id
         WHERE s.destination = ? AND s.due >= ? AND s.due <= ? ORDER BY s.due, s.id LIMIT ?";

    /// A page of a list.
    page: "SELECT " [moment = "due", id] " FROM schedule WHERE destination = ?
             AND (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?";

    /// The same, the latest first.
    page_back: "SELECT " [moment = "due", id] " FROM schedule WHERE destination = ?
             AND (due, id) < (?, ?) AND due >= ? ORDER BY due DESC, id DESC LIMIT ?";
}
