//! `audit`: the audit log.

pub(crate) static EXISTS: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'audit'";
pub(crate) static CREATE: &str = "CREATE TABLE audit (id INTEGER PRIMARY KEY, entry TEXT NOT NULL)";
pub(crate) static INSERT: &str = "INSERT INTO audit (entry) VALUES (?)";
/// Deletes all except the newest ones, whose number is a parameter.
pub(crate) static DELETE_OLDEST: &str =
    "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?";

rows! {
    before: "SELECT " [id, entry] " FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?";
}
