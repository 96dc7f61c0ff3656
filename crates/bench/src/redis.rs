//! Direct requests to Redis, beside delayd: memory, statistics, and removal of the keys of a bench.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, Value, cmd};

use crate::error::Error;

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
    pub(crate) async fn connect(url: &str, prefix: &str) -> Result<Self, Error> {
        let client = Client::open(url).map_err(Error::redis)?;
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
            .map_err(Error::redis)?;
        Ok(Self { connection, prefix: prefix.to_owned() })
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        command.query_async(&mut self.connection.clone()).await.map_err(Error::redis)
    }

    /// The numeric fields of a section of `INFO`.
    pub(crate) async fn info(&self, section: &str) -> Result<HashMap<String, f64>, Error> {
        let text: String = self.ask(cmd("INFO").arg(section)).await?;
        let numbers = text.lines().filter_map(|line| line.split_once(':'));
        Ok(numbers
            .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
            .collect())
    }

    /// One number of a section; 0 if it is missing.
    pub(crate) async fn number(&self, section: &str, name: &str) -> Result<f64, Error> {
        Ok(self.info(section).await?.get(name).copied().unwrap_or_default())
    }

    /// The id of the newest entry of the slow log.
    pub(crate) async fn newest_slow(&self) -> Result<i64, Error> {
        Ok(self.slow_entries(1).await?.first().map_or(-1, |(number, _)| *number))
    }

    /// The duration of the slowest command in the slow log after the entry `since`, in
    /// milliseconds. If there is none, the threshold of the log.
    pub(crate) async fn slowest_ms(&self, since: i64) -> Result<f64, Error> {
        let entries = self.slow_entries(-1).await?;
        let slowest =
            entries.iter().filter(|(number, _)| *number > since).map(|(_, took_us)| *took_us).max();
        let told: HashMap<String, i64> =
            self.ask(cmd("CONFIG").arg("GET").arg("slowlog-log-slower-than")).await?;
        let threshold = told.values().next().copied().unwrap_or_default();
        Ok(slowest.unwrap_or(threshold) as f64 / 1_000.0)
    }

    /// The 99.9th percentile of script calls since the start of the server, in milliseconds; `None`
    /// before Redis 7.
    pub(crate) async fn scripts_p999_ms(&self) -> Result<Option<f64>, Error> {
        let text: String = self.ask(cmd("INFO").arg("latencystats")).await?;
        let scripts =
            text.lines().find_map(|line| line.strip_prefix("latency_percentiles_usec_evalsha:"));
        let p999 = scripts.and_then(|spread| {
            spread.split(',').find_map(|part| part.trim().strip_prefix("p99.9="))
        });
        Ok(p999.and_then(|micros| micros.parse::<f64>().ok()).map(|micros| micros / 1_000.0))
    }

    /// Ids and durations (µs) of the newest entries; all if `most` is -1.
    async fn slow_entries(&self, most: i64) -> Result<Vec<(i64, i64)>, Error> {
        let entries: Vec<Vec<Value>> = self.ask(cmd("SLOWLOG").arg("GET").arg(most)).await?;
        let number = |value: Option<&Value>| match value {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        };
        Ok(entries
            .iter()
            .filter_map(|entry| Some((number(entry.first())?, number(entry.get(2))?)))
            .collect())
    }

    /// The number of fields of a hash.
    pub(crate) async fn length(&self, key: &str) -> Result<u64, Error> {
        self.ask(cmd("HLEN").arg(key)).await
    }

    /// Removes all keys with the prefix. The server frees them in the background.
    pub(crate) async fn clear(&self) -> Result<(), Error> {
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
