//! `expiry`: waiting tasks that are not worth delivering from a moment on.

pub(crate) static INSERT: &str = "INSERT OR IGNORE INTO expiry (lane, moment, id) VALUES (?, ?, ?)";
pub(crate) static DELETE: &str = "DELETE FROM expiry WHERE lane = ? AND moment = ? AND id = ?";
pub(crate) static EARLIEST: &str =
    "SELECT moment FROM expiry WHERE lane = ? ORDER BY moment LIMIT 1";

rows! {
    over: "SELECT " [moment, id]
        " FROM expiry WHERE lane = ? AND moment <= ? ORDER BY moment, id LIMIT ?";
}
