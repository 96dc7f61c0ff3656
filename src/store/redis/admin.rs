//! Cancel, reschedule and replay.

use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value};

use super::answer::{corrupt, state, text};
use super::arguments::write_moment;
use super::find::kind_of;
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, TaskId};
use crate::store::{
    Cancelled, Condition, Moment, NewContent, Rescheduled, Result, Selected, Spread,
};

/// The most ids of one script call.
const MOST: usize = 500;

impl Session {
    pub(crate) async fn cancel(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
    ) -> Result<Cancelled> {
        let script = match only {
            None => &script::CANCEL,
            Some(Condition::Named(_)) => &script::CANCEL_NAMED,
            Some(Condition::Selected(_)) => &script::CANCEL_SELECTED,
        };
        let mut call = self.lane_call(script, lane);
        call.arg(id.0);
        write_condition(&mut call, only);
        let answer = self.confirming.run_one(call).await?;
        if answer == Value::Nil {
            return Ok(Cancelled::Unknown);
        }
        match text(answer)?.as_str() {
            "done" => Ok(Cancelled::Done),
            "pending" => Ok(Cancelled::Pending),
            "unknown" => Ok(Cancelled::Unknown),
            name => Ok(Cancelled::Refused { state: state(name)? }),
        }
    }

    pub(crate) async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let script = match only {
            None => &script::RESCHEDULE,
            Some(Condition::Named(_)) => &script::RESCHEDULE_NAMED,
            Some(Condition::Selected(_)) => &script::RESCHEDULE_SELECTED,
        };
        let mut call = self.lane_call(script, lane);
        call.arg(id.0);
        write_moment(&mut call, moment);
        if let Some(new) = content {
            call.arg(new.destination.as_str()).arg(&new.content);
            if new.keeps_mode {
                call.arg("same");
            }
        }
        write_condition(&mut call, only);
        let answer = self.confirming.run_one(call).await?;
        if answer == Value::Nil {
            return Ok(Rescheduled::Unknown);
        }
        let answer = Vec::<Value>::from_redis_value(answer).map_err(corrupt)?;
        let mut fields = answer.into_iter();
        match text(fields.next().unwrap_or_default())?.as_str() {
            "done" => {
                let due =
                    i64::from_redis_value(fields.next().unwrap_or_default()).map_err(corrupt)?;
                self.hints.tell_all(lane, UnixMillis(due));
                Ok(Rescheduled::Done { due: UnixMillis(due) })
            }
            "unknown" => Ok(Rescheduled::Unknown),
            "other mode" => Ok(Rescheduled::OtherMode),
            name => Ok(Rescheduled::Refused { state: state(name)? }),
        }
    }

    /// Each script continues the sequence of moments where the one before ended; its now is
    /// slightly later.
    pub(crate) async fn replay(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
        spread: Spread,
    ) -> Result<usize> {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let step = millis(spread.step);
        let mut count = 0;
        for chunk in ids.chunks(MOST) {
            let first = millis(spread.first).saturating_add(step.saturating_mul(count as u64));
            let mut call = self.lane_call(&script::REPLAY, lane);
            call.arg(first).arg(step).arg(write_outcome(outcome));
            for id in chunk {
                call.arg(id.0);
            }
            let answer = self.confirming.run_one(call).await?;
            let (replayed, due): (usize, i64) =
                FromRedisValue::from_redis_value(answer).map_err(corrupt)?;
            if replayed > 0 && count == 0 {
                self.hints.tell_all(lane, UnixMillis(due));
            }
            count += replayed;
        }
        Ok(count)
    }
}

/// Writes an outcome as scripts compare it: '' for any.
pub(super) fn write_outcome(outcome: Option<&str>) -> String {
    outcome.map_or_else(String::new, |outcome| format!("={outcome}"))
}

/// Writes the last arguments of a script behind `lua/named.lua` or `lua/selected.lua`.
fn write_condition(call: &mut Cmd, only: Option<&Condition>) {
    match only {
        None => {}
        Some(Condition::Named(name)) => {
            call.arg(kind_of(name)).arg(name.text().as_ref());
        }
        Some(Condition::Selected(Selected { state, destination, due, outcome })) => {
            call.arg(state.as_str()).arg(due.0).arg(destination.as_str()).arg(outcome);
        }
    }
}
