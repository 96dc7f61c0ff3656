//! Destinations over all lanes: which are held by hand, and how much waits for each.

use std::collections::BTreeMap;

use deadpool_redis::redis::{FromRedisValue, Value, cmd};

use super::Inner;
use crate::store::{Error, Result, Waiting};
use crate::task::{Destination, Lane};

/// Commands of one pipeline.
const CHUNK: usize = 4_096;

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("Redis answered: {error}"))
}

pub(super) async fn set_hold(inner: &Inner, destination: &Destination, is_held: bool) -> Result<()> {
    let (key, name) = (inner.keys.holds(), destination.as_str());
    let change = match is_held {
        true => cmd("HSETNX").arg(key).arg(name).arg(inner.clock.now().0).take(),
        false => cmd("HDEL").arg(key).arg(name).take(),
    };
    inner.confirming.run_one(change).await.map(drop)
}

pub(super) async fn holds(inner: &Inner) -> Result<Vec<Destination>> {
    read_holds(inner.working.run_one(cmd("HKEYS").arg(inner.keys.holds()).take()).await?)
}

pub(super) fn read_holds(answer: Value) -> Result<Vec<Destination>> {
    let names = Vec::<String>::from_redis_value(answer).map_err(corrupt)?;
    // A name that is none holds nobody back.
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Two rounds of pipelines: who is there, then how many.
pub(super) async fn waiting(inner: &Inner, lanes: &[Lane]) -> Result<Vec<Waiting>> {
    let mut schedules = Vec::new();
    for lanes in lanes.chunks(CHUNK) {
        let look = |lane| cmd("ZRANGE").arg(inner.keys.destinations(lane)).arg(0).arg(-1).take();
        let answers = inner.working.run_repeatable(&lanes.iter().map(look).collect::<Vec<_>>()).await;
        for (lane, answer) in lanes.iter().zip(answers) {
            let names = Vec::<String>::from_redis_value(answer?).map_err(corrupt)?;
            schedules.extend(names.into_iter().filter_map(|name| Some((lane, name.parse::<Destination>().ok()?))));
        }
    }
    let mut counts: BTreeMap<Destination, u64> = BTreeMap::new();
    for schedules in schedules.chunks(CHUNK) {
        let count = |(lane, destination): &(&Lane, Destination)| {
            cmd("ZCARD").arg(inner.keys.schedule(lane, destination)).take()
        };
        let answers = inner.working.run_repeatable(&schedules.iter().map(count).collect::<Vec<_>>()).await;
        for ((_, destination), answer) in schedules.iter().zip(answers) {
            *counts.entry(destination.clone()).or_default() += u64::from_redis_value(answer?).map_err(corrupt)?;
        }
    }
    Ok(counts.into_iter().map(|(destination, count)| Waiting { destination, count }).collect())
}
