//! `sample`: counts of lanes for the sampler, in one pipeline per server.

use std::collections::BTreeMap;
use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, Value};

use super::answer::{corrupt, text};
use super::poll::{LanesScript, ask_lanes};
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::{Counts, LaneSample, Result, SampleAnswer, SampleQuery, ScheduleSample};

/// The most lanes of one script call, because it looks at several schedules of each.
const SAMPLE: LanesScript = (&script::SAMPLE, 16);

impl Session {
    pub(crate) async fn sample(&self, query: SampleQuery) -> Result<SampleAnswer> {
        let groups = SampleGroup::all(&query);
        let asked: Vec<_> =
            groups.iter().map(|group| (group.spans.as_str(), &group.lanes[..])).collect();
        let count = query.within.len();
        let read = |told| read_lane(told, count);
        let told = ask_lanes(self, &self.reading, &[], SAMPLE, &asked, read).await.1;
        let mut now = Err(corrupt("too little"));
        let mut lanes = vec![None; query.lanes.len()];
        for (group, told) in groups.iter().zip(told) {
            match told {
                Ok((at, samples)) => {
                    now = Ok(at);
                    for (&place, sample) in group.places.iter().zip(samples) {
                        lanes[place] = sample;
                    }
                }
                Err(error) => now = now.or(Err(error)),
            }
        }
        Ok(SampleAnswer { now: now?, lanes })
    }
}

/// The lanes whose tasks are late after the same time. Most requests have one group.
struct SampleGroup {
    /// The spans to count by, as the script takes them. The first one lies in the past.
    spans: String,
    lanes: Vec<Lane>,
    /// The places of the lanes in the request.
    places: Vec<usize>,
}

impl SampleGroup {
    fn all(query: &SampleQuery) -> Vec<Self> {
        let within: String =
            query.within.iter().map(|span| format!(",{}", span.as_millis())).collect();
        let mut groups: BTreeMap<Duration, Self> = BTreeMap::new();
        let group = |late: Duration| Self {
            spans: format!("-{}{within}", late.as_millis()),
            lanes: Vec::new(),
            places: Vec::new(),
        };
        for (place, lane) in query.lanes.iter().enumerate() {
            let late = query.late_after.get(place).copied().unwrap_or_default();
            let group = groups.entry(late).or_insert_with(|| group(late));
            group.lanes.push(lane.clone());
            group.places.push(place);
        }
        if groups.is_empty() {
            return vec![group(Duration::ZERO)];
        }
        groups.into_values().collect()
    }
}

/// Reads the counts of a lane by state, and its schedules, each with the count of late tasks and
/// `count` counts of due ones.
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
    if fields.len() != count + 5 {
        return Err(corrupt("too few counts"));
    }
    let mut fields = fields.into_iter();
    let mut next = || fields.next().unwrap_or_default();
    Ok(ScheduleSample {
        destination: text(next())?.parse().map_err(corrupt)?,
        earliest: UnixMillis(i64::from_redis_value(next()).map_err(corrupt)?),
        next: match next() {
            Value::Int(moment) => Some(UnixMillis(moment)),
            _ => None,
        },
        waiting: number(next())?,
        late: number(next())?,
        due: fields.map(number).collect::<Result<_>>()?,
        is_cut: false,
    })
}

fn number(value: Value) -> Result<u64> {
    u64::from_redis_value(value).map_err(corrupt)
}
