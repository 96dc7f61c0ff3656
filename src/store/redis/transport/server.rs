//! Inspects a Redis server once for each new connection.

use std::sync::Arc;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, RedisError};

use super::fault::of_redis;
use crate::store::{Durability, Error, Result};

/// The oldest version whose scripts can have flags.
const OLDEST_MAJOR: u32 = 7;

/// The mode of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// Alone or under Sentinel.
    Alone,
    /// As a node of a cluster.
    Cluster,
}

/// A server that is fit for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Changes with each restart: ids that were drawn from an earlier run must not be used.
    pub(crate) run_id: Arc<str>,
    /// What it keeps through a crash.
    pub(crate) durability: Durability,
    /// The memory that it uses, and `maxmemory`, which is 0 without a limit.
    pub(crate) memory: (u64, u64),
}

/// Inspects the server.
///
/// # Errors
/// [`Error::Misconfigured`] if it is too old, would evict tasks, or is in another mode;
/// [`Error::Unavailable`] if it is a replica, or still loading.
pub(crate) async fn inspect(
    connection: &mut MultiplexedConnection,
    mode: ServerMode,
) -> Result<Server> {
    let info: String =
        redis::cmd("INFO").query_async(connection).await.map_err(|e| of_redis(&e))?;
    // A managed server may forbid CONFIG. What is unknown is not promised.
    let appendfsync = config(connection, "appendfsync").await.unwrap_or_default();
    read(&info, &appendfsync, mode)
}

async fn config(
    connection: &mut MultiplexedConnection,
    name: &str,
) -> std::result::Result<String, RedisError> {
    let (_, value): (String, String) =
        redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await?;
    Ok(value)
}

/// The value of a field of INFO; empty if there is none.
fn field<'a>(info: &'a str, name: &str) -> &'a str {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
        .unwrap_or_default()
}

/// Whether the server that gave this answer to `INFO replication` accepts writes: it is not a
/// replica.
pub(crate) fn is_primary(info: &str) -> bool {
    field(info, "role") == "master"
}

fn read(info: &str, appendfsync: &str, mode: ServerMode) -> Result<Server> {
    let field = |name: &str| field(info, name);
    // Valkey calls it otherwise.
    let runs_as = [field("redis_mode"), field("server_mode")].concat();
    let topology = match (runs_as.as_str(), mode) {
        ("sentinel", _) => Some("a sentinel: set store.redis.topology to \"sentinel\""),
        ("cluster", ServerMode::Alone) => {
            Some("a node of a cluster: set store.redis.topology to \"cluster\"")
        }
        ("standalone", ServerMode::Cluster) => {
            Some("no node of a cluster: set store.redis.topology to \"standalone\"")
        }
        _ => None,
    };
    if let Some(what) = topology {
        return Err(Error::Misconfigured(format!("this Redis is {what}")));
    }
    // Valkey keeps redis_version at 7.2 for compatibility.
    let version = field("redis_version");
    let major: u32 =
        version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    if major < OLDEST_MAJOR {
        return Err(Error::Misconfigured(format!(
            "Redis {version} is too old: 7.0 or later is needed"
        )));
    }
    let policy = field("maxmemory_policy");
    if policy.starts_with("allkeys-") {
        return Err(Error::Misconfigured(format!(
            "Redis would evict accepted tasks: set maxmemory-policy to noeviction (it is {policy})"
        )));
    }
    if field("loading") == "1" {
        return Err(Error::Unavailable("Redis is still loading its data".into()));
    }
    if field("role") != "master" {
        return Err(Error::Unavailable("this Redis is a replica, not the primary".into()));
    }
    let durability = match (field("aof_enabled"), appendfsync) {
        ("1", "always") => Durability::AofAlways,
        ("1", "everysec") => Durability::AofEverysec,
        _ => Durability::Volatile,
    };
    let bytes = |name: &str| field(name).parse().unwrap_or_default();
    let memory = (bytes("used_memory"), bytes("maxmemory"));
    Ok(Server { run_id: field("run_id").into(), durability, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, policy: &str, aof: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\nrun_id:abc\r\nmaxmemory_policy:{policy}\r\n\
             loading:0\r\naof_enabled:{aof}\r\nrole:master\r\n"
        )
    }

    #[test]
    fn durability_is_named_after_the_aof() {
        let check = |aof: &str, fsync: &str, durability: Durability| {
            assert_eq!(
                read(&info("7.0.15", "noeviction", aof), fsync, ServerMode::Alone)
                    .unwrap()
                    .durability,
                durability
            );
        };
        check("1", "always", Durability::AofAlways);
        check("1", "everysec", Durability::AofEverysec);
        check("1", "no", Durability::Volatile);
        check("0", "always", Durability::Volatile);
    }

    #[test]
    fn a_server_that_would_lose_tasks_is_refused() {
        let check = |version: &str, policy: &str, says: &str| {
            let error =
                read(&info(version, policy, "1"), "everysec", ServerMode::Alone).unwrap_err();
            assert!(matches!(&error, Error::Misconfigured(text) if text.contains(says)), "{error}");
        };
        check("6.2.1", "noeviction", "7.0 or later");
        check("7.2.0", "allkeys-lru", "noeviction");
        let loading = info("7.0.0", "noeviction", "1").replace("loading:0", "loading:1");
        assert!(matches!(read(&loading, "always", ServerMode::Alone), Err(Error::Unavailable(_))));
        let replica = info("7.0.0", "noeviction", "1").replace("role:master", "role:slave");
        assert!(matches!(read(&replica, "always", ServerMode::Alone), Err(Error::Unavailable(_))));
    }

    #[test]
    fn a_server_of_another_topology_is_named() {
        let check = |runs_as: &str, mode: ServerMode, says: &str| {
            for name in ["redis_mode", "server_mode"] {
                let info = format!("{}{name}:{runs_as}\r\n", info("7.0.15", "noeviction", "1"));
                match read(&info, "always", mode) {
                    Err(Error::Misconfigured(text)) => {
                        assert!(!says.is_empty() && text.ends_with(says), "{text}")
                    }
                    other => assert!(says.is_empty() && other.is_ok(), "{other:?}"),
                }
            }
        };
        check("standalone", ServerMode::Alone, "");
        check("cluster", ServerMode::Cluster, "");
        check("cluster", ServerMode::Alone, "set store.redis.topology to \"cluster\"");
        check("standalone", ServerMode::Cluster, "set store.redis.topology to \"standalone\"");
        check("sentinel", ServerMode::Cluster, "set store.redis.topology to \"sentinel\"");
    }
}
