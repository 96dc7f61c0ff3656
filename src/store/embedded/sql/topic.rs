//! `topic`: the registry.

pub(crate) static INSERT: &str =
    "INSERT INTO topic (name, shards, created_by) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
/// How many topics a token has created.
pub(crate) static CREATED: &str = "SELECT count(*) FROM topic WHERE created_by = ?";
pub(crate) static SHARDS: &str = "SELECT shards FROM topic WHERE name = ?";
pub(crate) static SET_POLICY: &str = "UPDATE topic SET policy = ? WHERE name = ?";
pub(crate) static PAUSED: &str = "SELECT paused FROM topic WHERE name = ?";
pub(crate) static PAUSE: &str =
    "UPDATE topic SET paused = ifnull(paused, ?) WHERE name = ? RETURNING paused";
pub(crate) static RESUME: &str = "UPDATE topic SET paused = NULL WHERE name = ?";
pub(crate) static DELETE: &str = "DELETE FROM topic WHERE name = ?";

columns! {
    /// The registered data of a topic.
    registered, registered_columns: [name = "name", shards = "shards", policy = "policy",
    paused = "paused", created_by = "created_by"]
}
pub(crate) static ALL: &str =
    concat!("SELECT ", registered_columns!(), " FROM topic ORDER BY name");
pub(crate) static ONE: &str =
    concat!("SELECT ", registered_columns!(), " FROM topic WHERE name = ?");

// For a check.
rows! {
    checked: "SELECT " [name, shards, policy] " FROM topic";
}
pub(crate) static SET_SHARDS: &str = "INSERT INTO topic (name, shards) VALUES (?, ?) \
    ON CONFLICT DO UPDATE SET shards = excluded.shards";
