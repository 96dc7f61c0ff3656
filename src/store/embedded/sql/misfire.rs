//! `misfire`: past pauses.

columns! {
    /// A past pause.
    over, over_columns: [topic = "topic", first = "first", last = "last", state = "state"]
}
pub(crate) static ALL: &str =
    concat!("SELECT ", over_columns!(), " FROM misfire ORDER BY topic, number");
pub(crate) static OF_TOPIC: &str =
    concat!("SELECT ", over_columns!(), " FROM misfire WHERE topic = ? ORDER BY number");
pub(crate) static INSERT: &str = "INSERT INTO misfire (topic, number, first, last, state)
     VALUES (?1, (SELECT ifnull(max(number), 0) + 1 FROM misfire WHERE topic = ?1), ?2, ?3, ?4)";
/// Deletes all except the newest ones, whose number is a parameter.
pub(crate) static DELETE_OLDEST: &str = "DELETE FROM misfire WHERE topic = ?1 \
    AND number <= (SELECT max(number) FROM misfire WHERE topic = ?1) - ?2";
pub(crate) static DELETE: &str =
    "DELETE FROM misfire WHERE topic = ? AND first = ? AND last = ? AND state = ?";
pub(crate) static DELETE_OF_TOPIC: &str = "DELETE FROM misfire WHERE topic = ?";
