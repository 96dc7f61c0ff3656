//! Recurring schedules: `lua/lib/recurring.lua` describes what is stored of them.

use std::sync::Arc;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};

use super::answer::{corrupt, text};
use super::ids;
use super::ids::pool::{Drawn, IdRequest};
use super::record::write_options;
use super::registry::opening::{self, LaneRefusal};
use super::registry::reconcile;
use super::session::Session;
use super::{identity, script};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, ScheduleName, TaskId};
use crate::store::{
    DueSchedules, Error, FORMAT_OF_SCHEDULES, Hint, LAST_MOMENT, MAX_DUE_SCHEDULES, MAX_SCHEDULES,
    Moment, NewSchedule, Pause, Plan, Planned, PlannedOccurrence, Reader, Result, Schedule,
    ScheduleSet, TopicEntry,
};

/// How an absent cursor is written.
const NONE: &str = "-";
/// How often a new id is drawn for an occurrence whose id turned out to be taken.
const REDRAWS: usize = 3;

impl Session {
    pub(crate) async fn set_schedule(
        &self,
        topic: &TopicEntry,
        new: NewSchedule,
    ) -> Result<ScheduleSet> {
        let own = identity::id(self).await?;
        if identity::known_format(self).await.is_none_or(|format| format < FORMAT_OF_SCHEDULES) {
            return Ok(ScheduleSet::OldFormat);
        }
        let lane = new.name.lane_in(&topic.topic, topic.shards);
        let command = |opening: &str| {
            let mut call = self.lane_call(&script::SCHEDULE_SET, &lane);
            call.arg(opening)
                .arg(new.name.as_str())
                .arg(&new.definition)
                .arg(format!("{:016x}", new.revision))
                .arg(MAX_SCHEDULES);
            if let Some(moved) = &new.moved {
                let origin = Some(moved.origin).filter(|origin| *origin != own);
                call.arg(origin.map_or_else(|| NONE.into(), |origin| origin.to_string()))
                    .arg(moved.set.0)
                    .arg(moved.since.0)
                    .arg(moved.cursor.as_deref().unwrap_or(NONE))
                    .arg(u8::from(moved.is_paused));
            }
            call
        };
        // Planners look only at topics that are noted, so each attempt notes the topic first: a
        // deletion of the topic may have removed the note since.
        let mut fields = in_open_lane(self, topic, true, command).await?;
        let now = read_now(fields.next())?;
        let word = text(fields.next().unwrap_or_default())?;
        match word.as_str() {
            "too many" => return Ok(ScheduleSet::TooMany),
            "taken" => return Ok(ScheduleSet::Taken),
            "own" => return Ok(ScheduleSet::Own),
            _ => {}
        }
        let schedule = read_schedule(&new.name, now, fields.next(), fields.next())?
            .ok_or_else(|| corrupt("no schedule"))?;
        match word.as_str() {
            "created" => Ok(ScheduleSet::Created(schedule)),
            "changed" => Ok(ScheduleSet::Changed(schedule)),
            "unchanged" => Ok(ScheduleSet::Unchanged(schedule)),
            other => Err(corrupt(other)),
        }
    }

    pub(crate) async fn schedules(
        &self,
        reader: Reader,
        lane: &Lane,
        names: Vec<ScheduleName>,
    ) -> Result<Vec<Option<Schedule>>> {
        let mut call = self.lane_call(&script::SCHEDULES, lane);
        for name in &names {
            call.arg(name.as_str());
        }
        let mut fields = list(self.route_for(reader).run_one(call).await?)?;
        let now = read_now(fields.next())?;
        names.iter().map(|name| read_schedule(name, now, fields.next(), fields.next())).collect()
    }

    pub(crate) async fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Result<Vec<ScheduleName>> {
        let call = cmd("HKEYS").arg(self.keys.recurring(lane)).take();
        let mut names = read_names(self.reading.run_one(call).await?)?;
        names.retain(|name| after.as_ref().is_none_or(|after| name > after));
        names.sort_unstable();
        names.truncate(limit);
        Ok(names)
    }

    pub(crate) async fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Result<Option<Schedule>> {
        let mut call = self.lane_call(&script::SCHEDULE_PAUSE, lane);
        call.arg(name.as_str()).arg(pause.map_or("", letter_of));
        let mut fields = list(self.confirming.run_one(call).await?)?;
        let now = read_now(fields.next())?;
        read_schedule(name, now, fields.next(), fields.next())
    }

    pub(crate) async fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> Result<bool> {
        let call = self.lane_call(&script::SCHEDULE_DELETE, lane).arg(name.as_str()).take();
        bool::from_redis_value(self.confirming.run_one(call).await?).map_err(corrupt)
    }

    pub(crate) async fn forget_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<bool> {
        let mut call = self.lane_call(&script::SCHEDULE_DELETE, lane);
        call.arg(name.as_str()).arg(format!("{revision:016x}"));
        let answer = u8::from_redis_value(self.confirming.run_one(call).await?).map_err(corrupt)?;
        // 0: an earlier call has deleted it.
        Ok(answer < 2)
    }

    pub(crate) async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> {
        let mut call = self.lane_call(&script::SCHEDULES_DUE, lane);
        call.arg(skip).arg(MAX_DUE_SCHEDULES);
        let mut fields = list(self.working.run_one(call).await?)?;
        let now = read_now(fields.next())?;
        Ok(DueSchedules { now, names: read_names(fields.next().unwrap_or_default())? })
    }

    pub(crate) async fn plan(self: &Arc<Self>, plan: Plan) -> Result<Planned> {
        let shards = plan.topic.shards;
        let lane = plan.name.lane_in(&plan.topic.topic, shards);
        for _ in 0..=REDRAWS {
            let drawn = match &plan.next {
                None => None,
                Some(next) => {
                    let has_call = next.task.options.on_dead.is_some();
                    let request = IdRequest { shards, shard: Some(lane.shard), has_call };
                    let drawn = ids::draw(self, &[request]).await.pop();
                    Some(drawn.unwrap_or_else(|| Err(corrupt("no id")))?)
                }
            };
            let command = |opening: &str| plan_call(self, &lane, &plan, drawn, opening);
            let mut fields = in_open_lane(self, &plan.topic, false, command).await?.skip(1);
            let word = text(fields.next().unwrap_or_default())?;
            return Ok(match (word.as_str(), drawn) {
                ("stale", _) => Planned::Stale,
                ("waits", _) => Planned::Waits,
                ("ended", _) => Planned::Ended,
                ("taken", _) => continue,
                ("added", Some(Drawn { own: task, .. })) => {
                    let due = i64::from_redis_value(fields.next().unwrap_or_default());
                    let due = UnixMillis(due.map_err(corrupt)?);
                    if let Some(next) = &plan.next {
                        let is_pull = next.task.destination.is_pull();
                        self.hints.tell(Hint { lane: lane.clone(), due, is_pull });
                    }
                    Planned::Added { task, due }
                }
                _ => return Err(corrupt(word)),
            });
        }
        Err(Error::Unavailable("no free id was found".into()))
    }
}

fn plan_call(
    session: &Session,
    lane: &Lane,
    plan: &Plan,
    drawn: Option<Drawn>,
    opening: &str,
) -> Cmd {
    let mut call = session.lane_call(&script::PLAN, lane);
    call.arg(opening)
        .arg(plan.name.as_str())
        .arg(format!("{:016x}", plan.revision))
        .arg(plan.since.0)
        .arg(plan.cursor.as_deref().unwrap_or(NONE));
    match plan.missed {
        Some((count, until)) => call.arg(count).arg(until.0),
        None => call.arg("").arg(""),
    };
    call.arg(plan.look_again.0);
    let (Some(next), Some(drawn)) = (&plan.next, drawn) else {
        call.arg("");
        return call;
    };
    let task = &next.task;
    let due = match task.moment {
        Moment::At(due) => due,
        Moment::After(_) => UnixMillis(0),
    };
    let mut options = task.options.clone();
    if let Some(on_dead) = &mut options.on_dead {
        on_dead.task_id = drawn.call;
    }
    let expires = options.expires_after.map(|after| after.0.as_millis().to_string());
    let occurrence = options.schedule.as_ref();
    call.arg(drawn.own.0)
        .arg(due.0)
        .arg(task.destination.as_str())
        .arg(&*write_options(&options))
        .arg(&task.content)
        .arg(expires.unwrap_or_default())
        .arg(occurrence.map_or(0, |occurrence| occurrence.moment.0))
        .arg(occurrence.map_or(NONE, |occurrence| &occurrence.cursor))
        .arg(next.since.0)
        .arg(next.look.0);
    call
}

/// Sends a call to a lane, and opens the lane first if it is closed. Returns the fields of the
/// answer, from `now` on. Each attempt notes the topic first, if asked to.
async fn in_open_lane(
    session: &Session,
    entry: &TopicEntry,
    notes_topic: bool,
    command: impl Fn(&str) -> Cmd,
) -> Result<std::vec::IntoIter<Value>> {
    let mut token = None;
    for _ in 0..=opening::ATTEMPTS {
        if notes_topic {
            session.mark_schedules(&entry.topic).await?;
        }
        let call = command(&opening::argument(entry.shards, token.as_deref()));
        let refusal = match opening::read(session.confirming.run_one(call).await?)? {
            Ok(fields) => return Ok(fields),
            Err(refusal) => refusal,
        };
        let asked = [(entry, &refusal)];
        let confirmed = reconcile::confirm(session, asked.into_iter()).await;
        confirmed.into_iter().try_for_each(|(_, confirmed)| confirmed)?;
        if let LaneRefusal::Closed(opens) = refusal {
            token = Some(opens);
        }
    }
    Err(Error::StaleEntry)
}

fn letter_of(pause: Pause) -> &'static str {
    match pause {
        Pause::Operator => "o",
        Pause::Move => "m",
    }
}

fn list(value: Value) -> Result<std::vec::IntoIter<Value>> {
    Ok(Vec::<Value>::from_redis_value(value).map_err(corrupt)?.into_iter())
}

fn read_now(value: Option<Value>) -> Result<UnixMillis> {
    i64::from_redis_value(value.unwrap_or_default()).map(UnixMillis).map_err(corrupt)
}

/// Names that cannot be read are left out.
fn read_names(value: Value) -> Result<Vec<ScheduleName>> {
    let names = Vec::<Vec<u8>>::from_redis_value(value).map_err(corrupt)?;
    Ok(names.iter().filter_map(|name| std::str::from_utf8(name).ok()?.parse().ok()).collect())
}

/// Reads a record, and the moment of the next look.
fn read_schedule(
    name: &ScheduleName,
    now: UnixMillis,
    record: Option<Value>,
    look: Option<Value>,
) -> Result<Option<Schedule>> {
    let record = text(record.unwrap_or_default())?;
    if record.is_empty() {
        return Ok(None);
    }
    // A script answers a moment as a number, a score as text.
    let look = match look {
        Some(Value::Int(look)) => Some(UnixMillis(look)),
        Some(look) => text(look)?.parse::<f64>().ok().map(|look| UnixMillis(look as i64)),
        None => None,
    };
    let look = look.filter(|look| *look < LAST_MOMENT);
    let unreadable = || Error::Corrupt(format!("the schedule {name} cannot be read"));
    parse(name, now, &record, look).map(Some).ok_or_else(unreadable)
}

fn parse(
    name: &ScheduleName,
    now: UnixMillis,
    record: &str,
    look: Option<UnixMillis>,
) -> Option<Schedule> {
    let (head, definition) = record.split_once('\n')?;
    let fields: Vec<&str> = head.split(' ').collect();
    let ["1", revision, set, since, cursor, before, paused, origin, _ran, recent] = fields[..]
    else {
        return None;
    };
    let moment = |text: &str| text.parse().ok().map(UnixMillis);
    let paused = match paused.split_at_checked(1)? {
        (NONE, "") => None,
        ("o", at) => Some((Pause::Operator, moment(at)?)),
        ("m", at) => Some((Pause::Move, moment(at)?)),
        _ => return None,
    };
    let local_time = |text: &str| (text != NONE).then(|| text.to_owned());
    let before = match before.split_once(',') {
        Some((since, cursor)) => Some((moment(since)?, local_time(cursor))),
        None => None,
    };
    let occurrence = |text: &str| {
        let (task, at) = text.split_once('@')?;
        Some(PlannedOccurrence { task: TaskId(task.parse().ok()?), moment: moment(at)? })
    };
    let recent = match recent {
        NONE => Vec::new(),
        recent => recent.split(',').map(occurrence).collect::<Option<_>>()?,
    };
    Some(Schedule {
        name: name.clone(),
        definition: definition.to_owned(),
        revision: u64::from_str_radix(revision, 16).ok()?,
        set: moment(set)?,
        since: moment(since)?,
        cursor: local_time(cursor),
        before,
        paused,
        look,
        origin: match origin {
            NONE => None,
            origin => Some(origin.parse().ok()?),
        },
        recent,
        now,
    })
}
