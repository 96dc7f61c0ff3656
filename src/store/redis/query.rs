//! Reads tasks, pages of ids, counts and forecasts.

use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, Value};

use super::answer::{corrupt, text};
use super::record::{Record, StoredEntry, read_millis};
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, State, TaskId};
use crate::store::{
    Counts, FURTHEST_DEADLINE, LAST_MOMENT, LaneForecast, LeaseKind, ListQuery, Listed,
    MAX_FORECAST, Reader, Result, Summary, Task,
};

/// The most tasks of one script call.
const MOST: usize = 100;
/// The approximate number of counts that one script makes for a forecast.
const COUNTS_A_SCRIPT: usize = 4_000;

impl Session {
    pub(crate) async fn get(
        &self,
        reader: Reader,
        lane: &Lane,
        id: TaskId,
    ) -> Result<Option<Task>> {
        let call = self.lane_call(&script::GET, lane).arg(id.0).take();
        let answer = self.route_for(reader).run_one(call).await?;
        let fields = Vec::<Value>::from_redis_value(answer).map_err(corrupt)?;
        if fields.is_empty() {
            return Ok(None);
        }
        let [now, record, key_set, place @ ..] =
            <[Value; 7]>::try_from(fields).map_err(|_| corrupt("too few fields"))?;
        let now = UnixMillis(i64::from_redis_value(now).map_err(corrupt)?);
        let record = Record::read(Vec::<u8>::from_redis_value(record).map_err(corrupt)?)?;
        let place = ListPlace::read(now, &record, place)?;
        Ok(Some(Task {
            id,
            state: place.state,
            lease: place.lease(),
            destination: record.destination,
            due: place.due,
            created: record.created,
            finished: place.finished,
            attempts: place.entry.attempts,
            last_outcome: place.entry.outcome,
            cancelling: place.entry.cancelling,
            key_set: read_moment(key_set)?,
            options: record.options,
            content: record.content,
        }))
    }

    /// The tasks without content. One that cannot be read is left out and logged, so that the rest
    /// of the page can be shown.
    pub(crate) async fn summaries(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
    ) -> Result<Vec<Option<Summary>>> {
        let mut summaries = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(MOST) {
            let mut call = self.lane_call(&script::SUMMARIES, lane);
            for id in chunk {
                call.arg(id.0);
            }
            let answer = Vec::<Value>::from_redis_value(self.reading.run_one(call).await?)
                .map_err(corrupt)?;
            if answer.len() != chunk.len() + 1 {
                return Err(corrupt("too few tasks"));
            }
            let mut answer = answer.into_iter();
            let now = UnixMillis(
                i64::from_redis_value(answer.next().unwrap_or_default()).map_err(corrupt)?,
            );
            for (&id, fields) in chunk.iter().zip(answer) {
                let Value::Array(fields) = fields else {
                    summaries.push(None);
                    continue;
                };
                let read = read_summary(now, id, fields);
                summaries.push(
                    read.inspect_err(
                        |error| tracing::error!(task.id = %id, %error, "Task {id} cannot be read"),
                    )
                    .ok(),
                );
            }
        }
        Ok(summaries)
    }

    pub(crate) async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        list(self, &query, Direction::Forward).await
    }

    pub(crate) async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> {
        list(self, &query, Direction::Back).await
    }

    pub(crate) async fn stats(&self, lane: &Lane) -> Result<Counts> {
        let call = self.lane_call(&script::STATS, lane);
        type Answer = (u64, u64, u64, u64, u64, u64, Value);
        let answer = self.reading.run_one(call).await?;
        let (scheduled, leased, delivered, dead, cancelled, expired, earliest): Answer =
            FromRedisValue::from_redis_value(answer).map_err(corrupt)?;
        let earliest =
            if let Value::Int(moment) = earliest { Some(UnixMillis(moment)) } else { None };
        Ok(Counts { scheduled, leased, delivered, dead, cancelled, expired, earliest })
    }

    /// Counts the due moments of a lane, a few destinations per script, so that no script is long.
    /// All use the first script's now.
    pub(crate) async fn forecast(
        &self,
        lane: &Lane,
        step: Duration,
        steps: usize,
    ) -> Result<LaneForecast> {
        type Answer = (i64, Vec<u64>, Vec<Vec<u8>>);
        let steps = steps.min(MAX_FORECAST);
        let longest = LAST_MOMENT.0 / MAX_FORECAST as i64;
        let step = i64::try_from(step.as_millis()).unwrap_or(longest).min(longest);
        let call = |from: i64, names: &[Vec<u8>]| {
            let mut call = self.lane_call(&script::FORECAST, lane);
            call.arg(from).arg(step).arg(steps).arg(names).take()
        };
        let read = |answer: Value| Answer::from_redis_value(answer).map_err(corrupt);
        let pulled = [Destination::pull().as_str().as_bytes().to_vec()];
        let (now, mut counts, names) = read(self.reading.run_one(call(0, &pulled)).await?)?;
        for names in names.chunks((COUNTS_A_SCRIPT / steps.max(1)).max(1)) {
            let (_, more, _) = read(self.reading.run_one(call(now, names)).await?)?;
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        let overdue = if counts.is_empty() { 0 } else { counts.remove(0) };
        Ok(LaneForecast { now: UnixMillis(now), overdue, steps: counts })
    }
}

/// A moment; an empty text means none.
fn read_moment(value: Value) -> Result<Option<UnixMillis>> {
    match text(value)?.as_str() {
        "" => Ok(None),
        number => read_millis(number).map(Some),
    }
}

/// The state of a task, and its moments.
struct ListPlace {
    state: State,
    due: UnixMillis,
    finished: Option<UnixMillis>,
    entry: StoredEntry,
}

impl ListPlace {
    /// Reads the answer of `lua/lib/where.lua`.
    fn read(
        now: UnixMillis,
        record: &Record,
        [entry, deadline, due, finished]: [Value; 4],
    ) -> Result<Self> {
        let entry = match text(entry)?.as_str() {
            "" => StoredEntry {
                attempts: 0,
                ended: None,
                cancelling: false,
                lease: None,
                outcome: String::new(),
            },
            written => StoredEntry::read(written)?,
        };
        let (state, due) = match (entry.ended, read_moment(deadline)?, read_moment(due)?) {
            (Some(state), _, _) => (state, record.due),
            (None, Some(deadline), _) if deadline > now && deadline <= now + FURTHEST_DEADLINE => {
                (State::Leased, record.due)
            }
            (None, Some(deadline), _) => (State::Scheduled, deadline.min(now)),
            (None, None, due) => (State::Scheduled, due.unwrap_or(record.due)),
        };
        Ok(Self { state, due, finished: read_moment(finished)?, entry })
    }

    fn lease(&self) -> Option<LeaseKind> {
        self.entry.lease.filter(|_| self.state == State::Leased)
    }
}

fn read_summary(now: UnixMillis, id: TaskId, fields: Vec<Value>) -> Result<Summary> {
    let [head, place @ ..] =
        <[Value; 5]>::try_from(fields).map_err(|_| corrupt("too few fields"))?;
    let record = Record::read(Vec::<u8>::from_redis_value(head).map_err(corrupt)?)?;
    let place = ListPlace::read(now, &record, place)?;
    Ok(Summary {
        id,
        state: place.state,
        lease: place.lease(),
        destination: record.destination,
        due: place.due,
        created: record.created,
        finished: place.finished,
        attempts: place.entry.attempts,
        last_outcome: place.entry.outcome,
        key: record.options.key,
    })
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The earliest first.
    Forward,
    /// The latest first.
    Back,
}

pub(super) async fn list(
    session: &Session,
    query: &ListQuery,
    direction: Direction,
) -> Result<Vec<Listed>> {
    let mut call = session.lane_call(&script::LIST, &query.lane);
    call.arg(query.state.as_str())
        .arg(query.from.0.clamp(-LAST_MOMENT.0, LAST_MOMENT.0))
        .arg(query.to.0.clamp(-LAST_MOMENT.0, LAST_MOMENT.0));
    match query.after {
        Some(after) => call.arg(after.moment.0).arg(after.id.0),
        None => call.arg("").arg(""),
    };
    call.arg(query.limit).arg(if direction == Direction::Back { "back" } else { "" });
    let found =
        Vec::<String>::from_redis_value(session.reading.run_one(call).await?).map_err(corrupt)?;
    let mut page = found
        .chunks_exact(2)
        .map(|pair| {
            let id = TaskId(pair[0].parse().map_err(corrupt)?);
            Ok(Listed { moment: read_millis(&pair[1])?, id })
        })
        .collect::<Result<Vec<_>>>()?;
    page.sort_unstable();
    if direction == Direction::Back {
        page.reverse();
    }
    page.truncate(query.limit);
    Ok(page)
}
