//! `hold`: destinations that operators hold.

pub(crate) static INSERT: &str = "INSERT OR IGNORE INTO hold (destination, since) VALUES (?, ?)";
pub(crate) static DELETE: &str = "DELETE FROM hold WHERE destination = ?";
pub(crate) static ALL: &str = "SELECT destination FROM hold ORDER BY destination";
