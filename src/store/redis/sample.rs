//! `sample`: counts of lanes for the sampler, in one pipeline per server.

use deadpool_redis::redis::{FromRedisValue, Value};

use super::answer::{corrupt, text};
use super::poll::{LanesScript, ask_lanes};
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::store::{Counts, LaneSample, Result, SampleQuery, Sampled, ScheduleSample};

/// The most lanes of one script call, because it looks at several schedules of each.
const SAMPLE: LanesScript = (&script::SAMPLE, 16);

pub(super) async fn sample(session: &Session, query: &SampleQuery) -> Result<Sampled> {
    let spans: Vec<String> = query.within.iter().map(|span| span.as_millis().to_string()).collect();
    let (spans, count) = (spans.join(","), query.within.len());
    let asked = [(spans.as_str(), &query.lanes[..])];
    let told = ask_lanes(session, &[], SAMPLE, &asked, |told| read_lane(told, count)).await.1;
    let (now, lanes) = told.into_iter().next().unwrap_or_else(|| Err(corrupt("too little")))?;
    Ok(Sampled { now, lanes })
}

/// Reads the counts of a lane by state, and its schedules, each with `count` counts of due tasks.
fn read_lane(told: Value, count: usize) -> Result<LaneSample> {
    let Value::Array(fields) = told else { return Ok(LaneSample::default()) };
    let mut fields = fields.into_iter();
    let mut next = || number(fields.next().unwrap_or_default());
    let mut counts = Counts {
        scheduled: next()?,
        leased: next()?,
        delivered: next()?,
        dead: next()?,
        cancelled: next()?,
        expired: next()?,
        earliest: None,
    };
    let schedules: Vec<ScheduleSample> =
        fields.map(|told| read_schedule(told, count)).collect::<Result<_>>()?;
    counts.earliest = schedules.iter().map(|schedule| schedule.earliest).min();
    Ok(LaneSample { counts, schedules })
}

fn read_schedule(told: Value, count: usize) -> Result<ScheduleSample> {
    let Value::Array(fields) = told else { return Err(corrupt("no schedule")) };
    if fields.len() != count + 3 {
        return Err(corrupt("too few counts"));
    }
    let mut fields = fields.into_iter();
    let mut next = || fields.next().unwrap_or_default();
    Ok(ScheduleSample {
        destination: text(next())?.parse().map_err(corrupt)?,
        earliest: UnixMillis(i64::from_redis_value(next()).map_err(corrupt)?),
        waiting: number(next())?,
        due: fields.map(number).collect::<Result<_>>()?,
        is_cut: false,
    })
}

fn number(value: Value) -> Result<u64> {
    u64::from_redis_value(value).map_err(corrupt)
}
