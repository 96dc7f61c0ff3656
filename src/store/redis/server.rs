//! What a Redis server is, looked at once for each new connection.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, RedisError};

use super::fault::of_redis;
use crate::store::{Durability, Error, Result};

/// The oldest version whose scripts can carry flags.
const OLDEST_MAJOR: u32 = 7;

/// A server fit for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// Another after each restart: whoever drew ids from the one before must not trust them.
    pub(super) run_id: String,
    /// What it keeps through a crash.
    pub(super) durability: Durability,
}

/// Asks the server what it is.
///
/// # Errors
/// [`Error::Misconfigured`] for one that is too old, or would evict tasks; [`Error::Unavailable`] for a replica or one that
/// is still loading.
pub(super) async fn inspect(connection: &mut MultiplexedConnection) -> Result<Server> {
    let info: String = redis::cmd("INFO").query_async(connection).await.map_err(|e| of_redis(&e))?;
    // CONFIG may be forbidden on a managed server. What cannot be known is not promised.
    let appendfsync = config(connection, "appendfsync").await.unwrap_or_default();
    read(&info, &appendfsync)
}

async fn config(connection: &mut MultiplexedConnection, name: &str) -> std::result::Result<String, RedisError> {
    let (_, value): (String, String) = redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await?;
    Ok(value)
}

fn read(info: &str, appendfsync: &str) -> Result<Server> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim).unwrap_or_default()
    };
    // Valkey keeps redis_version at 7.2 for compatibility.
    let version = field("redis_version");
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    if major < OLDEST_MAJOR {
        return Err(Error::Misconfigured(format!("Redis {version} is too old: 7.0 or later is needed")));
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
    if field("role") == "slave" {
        return Err(Error::Unavailable("this Redis is a replica, not the primary".into()));
    }
    let durability = match (field("aof_enabled"), appendfsync) {
        ("1", "always") => Durability::AofAlways,
        ("1", "everysec") => Durability::AofEverysec,
        _ => Durability::Volatile,
    };
    Ok(Server { run_id: field("run_id").to_owned(), durability })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, policy: &str, aof: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\nrun_id:abc\r\nmaxmemory_policy:{policy}\r\nloading:0\r\naof_enabled:{aof}\r\nrole:master\r\n"
        )
    }

    #[test]
    fn durability_is_named_after_the_aof() {
        let check = |aof: &str, fsync: &str, durability: Durability| {
            assert_eq!(read(&info("7.0.15", "noeviction", aof), fsync).unwrap().durability, durability);
        };
        check("1", "always", Durability::AofAlways);
        check("1", "everysec", Durability::AofEverysec);
        check("1", "no", Durability::Volatile);
        check("0", "always", Durability::Volatile);
    }

    #[test]
    fn a_server_that_would_lose_tasks_is_refused() {
        let check = |version: &str, policy: &str, says: &str| {
            let error = read(&info(version, policy, "1"), "everysec").unwrap_err();
            assert!(matches!(&error, Error::Misconfigured(text) if text.contains(says)), "{error}");
        };
        check("6.2.1", "noeviction", "7.0 or later");
        check("7.2.0", "allkeys-lru", "noeviction");
        let loading = info("7.0.0", "noeviction", "1").replace("loading:0", "loading:1");
        assert!(matches!(read(&loading, "always"), Err(Error::Unavailable(_))));
        let replica = info("7.0.0", "noeviction", "1").replace("role:master", "role:slave");
        assert!(matches!(read(&replica, "always"), Err(Error::Unavailable(_))));
    }
}
