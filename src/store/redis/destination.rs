//! Destinations over all lanes: manual holds, and how many tasks wait for each.

use std::collections::BTreeMap;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};

use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane};
use crate::store::{Error, Holds, RELEASES_KEPT, Result, Waiting};

/// The most commands of one pipeline.
const CHUNK: usize = 4_096;

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("Redis answered: {error}"))
}

impl Session {
    pub(crate) async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        let (holds, releases) = (self.keys.holds(), self.keys.releases());
        let (name, now) = (destination.as_str(), self.clock.now());
        let changes = match is_held {
            true => vec![cmd("HSETNX").arg(holds).arg(name).arg(now.0).take()],
            false => vec![
                cmd("HDEL").arg(holds).arg(name).take(),
                cmd("ZADD").arg(&releases).arg(now.0).arg(name).take(),
                cmd("ZREMRANGEBYSCORE")
                    .arg(&releases)
                    .arg("-inf")
                    .arg((now - RELEASES_KEPT).0)
                    .take(),
                cmd("PEXPIRE").arg(&releases).arg(RELEASES_KEPT.as_millis() as u64).take(),
            ],
        };
        self.confirming
            .run_repeatable(&changes)
            .await
            .into_iter()
            .try_for_each(|answer| answer.map(drop))
    }

    pub(crate) async fn holds(&self) -> Result<Holds> {
        let answers = self
            .working
            .run_repeatable(&ask_holds(self))
            .await
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        read_holds(answers.try_into().map_err(|_| corrupt("too few answers"))?)
    }

    /// How many tasks wait for each destination. Takes two rounds of pipelines: the names of the
    /// destinations, then the counts.
    pub(crate) async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        let mut schedules = Vec::new();
        for lanes in lanes.chunks(CHUNK) {
            let look = |lane| cmd("ZRANGE").arg(self.keys.destinations(lane)).arg(0).arg(-1).take();
            let answers =
                self.reading.run_repeatable(&lanes.iter().map(look).collect::<Vec<_>>()).await;
            for (lane, answer) in lanes.iter().zip(answers) {
                let names = Vec::<String>::from_redis_value(answer?).map_err(corrupt)?;
                schedules.extend(
                    names
                        .into_iter()
                        .filter_map(|name| Some((lane, name.parse::<Destination>().ok()?))),
                );
            }
        }
        let mut counts: BTreeMap<Destination, u64> = BTreeMap::new();
        for schedules in schedules.chunks(CHUNK) {
            let count = |(lane, destination): &(&Lane, Destination)| {
                cmd("ZCARD").arg(self.keys.schedule(lane, destination)).take()
            };
            let answers =
                self.reading.run_repeatable(&schedules.iter().map(count).collect::<Vec<_>>()).await;
            for ((_, destination), answer) in schedules.iter().zip(answers) {
                *counts.entry(destination.clone()).or_default() +=
                    u64::from_redis_value(answer?).map_err(corrupt)?;
            }
        }
        Ok(counts.into_iter().map(|(destination, count)| Waiting { destination, count }).collect())
    }
}

/// The commands that read the holds.
pub(super) fn ask_holds(session: &Session) -> [Cmd; 2] {
    let held = cmd("HKEYS").arg(session.keys.holds()).take();
    [held, cmd("ZRANGE").arg(session.keys.releases()).arg(0).arg(-1).arg("WITHSCORES").take()]
}

/// Reads the answers to [`ask_holds`].
pub(super) fn read_holds([held, released]: [Value; 2]) -> Result<Holds> {
    let held = Vec::<String>::from_redis_value(held).map_err(corrupt)?;
    let released = Vec::<(String, i64)>::from_redis_value(released).map_err(corrupt)?;
    // A name that is not valid holds no destination.
    Ok(Holds {
        held: held.iter().filter_map(|name| name.parse().ok()).collect(),
        released: released
            .iter()
            .filter_map(|(name, at)| Some((name.parse().ok()?, UnixMillis(*at))))
            .collect(),
    })
}
