//! Direct requests to Redis, beside delayd: memory, statistics, and removal of the keys of a bench.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, cmd};

/// The timeout of an answer. A server under load, or one that writes a snapshot, has pauses.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys per scan step.
const SCANNED: usize = 1_000;

/// A server, and the key prefix of the bench.
pub(crate) struct Redis {
    connection: MultiplexedConnection,
    prefix: String,
}

impl Redis {
    pub(crate) async fn connect(url: &str, prefix: &str) -> anyhow::Result<Self> {
        let client = Client::open(url).context("Redis")?;
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection =
            client.get_multiplexed_async_connection_with_config(&patient).await.context("Redis")?;
        Ok(Self { connection, prefix: prefix.to_owned() })
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> anyhow::Result<T> {
        command.query_async(&mut self.connection.clone()).await.context("Redis")
    }

    /// The numeric fields of a section of `INFO`.
    pub(crate) async fn info(&self, section: &str) -> anyhow::Result<HashMap<String, f64>> {
        let text: String = self.ask(cmd("INFO").arg(section)).await?;
        let numbers = text.lines().filter_map(|line| line.split_once(':'));
        Ok(numbers
            .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
            .collect())
    }

    /// One number of a section; 0 if it is missing.
    pub(crate) async fn number(&self, section: &str, name: &str) -> anyhow::Result<f64> {
        Ok(self.info(section).await?.get(name).copied().unwrap_or_default())
    }

    /// The 99.9th percentile of script calls since the start of the server, in milliseconds; `None`
    /// before Redis 7.
    pub(crate) async fn scripts_p999_ms(&self) -> anyhow::Result<Option<f64>> {
        let text: String = self.ask(cmd("INFO").arg("latencystats")).await?;
        let scripts =
            text.lines().find_map(|line| line.strip_prefix("latency_percentiles_usec_evalsha:"));
        let p999 = scripts.and_then(|spread| {
            spread.split(',').find_map(|part| part.trim().strip_prefix("p99.9="))
        });
        Ok(p999.and_then(|micros| micros.parse::<f64>().ok()).map(|micros| micros / 1_000.0))
    }

    /// Removes all keys with the prefix. The server frees them in the background.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let mut cursor = 0_u64;
        loop {
            let scan = cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{}*", self.prefix))
                .arg("COUNT")
                .arg(SCANNED)
                .clone();
            let (next, keys): (u64, Vec<Vec<u8>>) = self.ask(&scan).await?;
            if !keys.is_empty() {
                let _: u64 = self.ask(cmd("UNLINK").arg(keys)).await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }
}
