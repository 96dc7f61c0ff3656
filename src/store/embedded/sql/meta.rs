//! `meta`: numbers of the store as a whole.

pub(crate) static LAST_ID: &str = "SELECT value FROM meta WHERE name = 'last_id'";
pub(crate) static SET_LAST_ID: &str = "UPDATE meta SET value = ? WHERE name = 'last_id'";
pub(crate) static STORE_ID: &str = "SELECT value FROM meta WHERE name = 'store_id'";
pub(crate) static SET_STORE_ID: &str = "UPDATE meta SET value = ? WHERE name = 'store_id'";
pub(crate) static FORMAT: &str = "SELECT value FROM meta WHERE name = 'format'";
pub(crate) static SET_FORMAT: &str = "UPDATE meta SET value = ? WHERE name = 'format'";
pub(crate) static SET_FIRST_FORMAT: &str =
    "INSERT OR IGNORE INTO meta (name, value) VALUES ('format', ?)";
