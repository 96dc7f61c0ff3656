//! Calls `lua/claim.lua` and reads its answer.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value};
use tokio::sync::mpsc;

use super::record::Record;
use super::script;
use super::session::Session;
use super::transport::link::{LateAnswers, Repeat};
use super::transport::node::Purpose;
use super::transport::servers::one;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Receipt, TaskId};
use crate::store::{
    Asker, Claim, Claimed, Error, Grant, LeasedTask, MAX_CLAIM_BYTES, MAX_ENDED, MAX_LEASE,
    MAX_MISFIRES, MAX_OUTLOOK, MAX_SWEEP, Misfire, Misfired, Outlook, Position, Result, Settle,
    Swept, Transition, counted,
};

/// How often tasks of a late claim are given back, and the first wait between two attempts. Each
/// further wait is twice as long.
const TRIES: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(100);

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("claim.lua answered: {error}"))
}

impl Session {
    /// Leases due tasks. A claim is never repeated. If it is answered too late, its tasks are given
    /// back; if its answer is lost, they return when their leases expire.
    pub(crate) async fn claim(self: &Arc<Self>, claim: Claim) -> Result<Claimed> {
        let receipt = Receipt::random();
        let mut call = self.lane_call(&script::CLAIM, &claim.lane);
        call.arg(receipt.as_str())
            .arg(claim.lease.min(MAX_LEASE).as_millis() as u64)
            .arg(claim.holder.as_ref().map_or("", |holder| &holder.0))
            .arg(u8::from(claim.more))
            .arg(write_position(claim.after.as_ref()))
            .arg(MAX_SWEEP)
            .arg(MAX_CLAIM_BYTES)
            .arg(MAX_OUTLOOK)
            .arg(MAX_ENDED)
            .arg(write_misfires(&claim.misfires))
            .arg(claim.in_hand);
        for want in &claim.wants {
            call.arg(want.destination.as_str()).arg(want.slots);
        }
        let (late, mut answers) = mpsc::unbounded_channel();
        let error = match ask(self, call, &late).await {
            Ok(answer) => {
                let claimed = read(self, &claim.lane, receipt, answer);
                return claimed.inspect(|claimed| counted::count_claim(&self.metrics, claimed));
            }
            Err(error) => error,
        };
        // The channel ends at once unless the server was silent.
        drop(late);
        let (session, lane) = (self.clone(), claim.lane.clone());
        tokio::spawn(async move {
            let Some(answer) = late_answer(&mut answers).await else { return };
            match read(&session, &lane, receipt, answer) {
                Ok(Claimed::Granted(grant)) => give_back(&session, &lane, grant).await,
                Ok(Claimed::Refused { .. }) => {}
                Err(error) => {
                    tracing::error!(%lane, %error, "A late claim of {lane} is unreadable")
                }
            }
        });
        Err(error)
    }
}

/// Sends the claim. If the server is silent, the answer goes to `late` once it speaks again.
async fn ask(session: &Session, call: Cmd, late: &LateAnswers) -> Result<Value> {
    one(session.servers.run(Purpose::Working, &[call], Repeat::NeverButHear(late)).await)
}

/// The answer of a claim whose caller was refused, if there is one. While a slot moves, the answer
/// of ASKING comes first.
async fn late_answer(answers: &mut mpsc::UnboundedReceiver<Value>) -> Option<Value> {
    loop {
        let answer = answers.recv().await?;
        if let Value::Array(_) = answer {
            return Some(answer);
        }
    }
}

/// Releases the tasks of a claim whose caller was refused.
async fn give_back(session: &Session, lane: &Lane, Grant { receipt, tasks, .. }: Grant) {
    let release = |task: &LeasedTask| Settle {
        lane: lane.clone(),
        id: task.id,
        receipt: receipt.clone(),
        transition: Transition::Release,
    };
    let back: Vec<Settle> = tasks.iter().map(release).collect();
    let (count, mut wait) = (back.len(), FIRST_WAIT);
    for attempt in 1..=TRIES {
        // A repeated release changes nothing.
        match session.settle(Asker::Worker, back.clone()).await.into_iter().find_map(Result::err) {
            None => return,
            // The server was silent a moment ago, so its circuit breaker may be open.
            Some(Error::Unavailable(_) | Error::Moving(_)) if attempt < TRIES => {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            Some(error) => {
                tracing::warn!(
                    %lane,
                    count,
                    %error,
                    "Tasks that were pulled too late could not be given back; they return when \
                     their leases expire"
                );
                return;
            }
        }
    }
}

/// Reads the answer of the script. Hints at tasks that movers' leases returned: they may be due
/// before what the lane's worker reads next.
fn read(session: &Session, lane: &Lane, receipt: Receipt, answer: Value) -> Result<Claimed> {
    let mut fields = Vec::<Value>::from_redis_value(answer).map_err(corrupt)?.into_iter();
    let mut field = || fields.next().ok_or_else(|| corrupt("too few fields"));
    if i64::from_redis_value(field()?).map_err(corrupt)? == 0 {
        let left = i64::from_redis_value(field()?).map_err(corrupt)?;
        return Ok(Claimed::Refused {
            retry_in: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
        });
    }
    let now = UnixMillis(i64::from_redis_value(field()?).map_err(corrupt)?);
    let tasks = read_tasks(Vec::<Value>::from_redis_value(field()?).map_err(corrupt)?);
    let mut names = Vec::<Value>::from_redis_value(field()?).map_err(corrupt)?;
    let wanted = names.split_off(names.len().min(MAX_OUTLOOK));
    let mut due = read_destinations(lane, names);
    let next = match field()? {
        Value::Int(moment) => Some(UnixMillis(moment)),
        _ => None,
    };
    let swept = match fields.next() {
        None | Some(Value::Nil) => Swept::default(),
        Some(counts) => {
            let (swept, returned) = read_swept(counts)?;
            returned.into_iter().for_each(|due| session.hints.tell_all(lane, due));
            swept
        }
    };
    let end = match fields.next() {
        Some(moment) => {
            let moment = UnixMillis(i64::from_redis_value(moment).map_err(corrupt)?);
            // Destinations that have no valid name at the end of a page are read again.
            Some(Position { moment, destination: due.last().cloned() })
        }
        None => None,
    };
    due.extend(read_destinations(lane, wanted));
    let outlook = Outlook { due, end, next };
    Ok(Claimed::Granted(Grant { now, receipt, tasks, outlook, swept }))
}

/// Reads what the claim ended, and the earliest moment of what movers' leases returned. The script
/// says it only if that is anything.
fn read_swept(counts: Value) -> Result<(Swept, Option<UnixMillis>)> {
    let mut counts = Vec::<Value>::from_redis_value(counts).map_err(corrupt)?;
    let returned = counts.drain(counts.len().min(9)..).next();
    let returned = returned.map(i64::from_redis_value).transpose().map_err(corrupt)?;
    let [
        push_leases,
        pull_leases,
        cancelled,
        leases_ran_out,
        unreadable,
        expired,
        misfired_expired,
        misfired_dead,
        skipped,
    ] = <[u32; 9]>::from_redis_value(Value::Array(counts)).map_err(corrupt)?;
    let swept = Swept {
        push_leases,
        pull_leases,
        cancelled,
        leases_ran_out,
        unreadable,
        expired,
        misfired_expired,
        misfired_dead,
        skipped,
    };
    Ok((swept, returned.map(UnixMillis)))
}

/// Writes a position as the script reads it.
fn write_position(after: Option<&Position>) -> String {
    match after {
        None => String::new(),
        Some(Position { moment, destination: None }) => moment.0.to_string(),
        Some(Position { moment, destination: Some(last) }) => format!("{} {last}", moment.0),
    }
}

fn write_misfires(misfires: &[Misfire]) -> String {
    let write = |misfire: &Misfire| {
        format!("{} {} {}", misfire.from.0, misfire.to.0, name_of(misfire.becomes))
    };
    misfires.iter().take(MAX_MISFIRES).map(write).collect::<Vec<_>>().join(" ")
}

/// What becomes of a misfired task, as the scripts write it.
pub(super) fn name_of(becomes: Misfired) -> &'static str {
    match becomes {
        Misfired::Expired => "expired",
        Misfired::Dead => "dead",
    }
}

/// Reads the names of due destinations. A name that is not valid is skipped: the tasks that were
/// leased must still be called.
fn read_destinations(lane: &Lane, names: Vec<Value>) -> Vec<Destination> {
    let read = |name| String::from_redis_value(name).map_err(corrupt)?.parse().map_err(corrupt);
    let read = names.into_iter().map(read).filter_map(|name: Result<Destination>| {
        name.inspect_err(
            |error| tracing::error!(%lane, %error, "A destination of lane {lane} is skipped"),
        )
        .ok()
    });
    read.collect()
}

/// Reads the leased tasks. A task that cannot be read is skipped, and returns when its lease
/// expires.
fn read_tasks(values: Vec<Value>) -> Vec<LeasedTask> {
    let mut tasks = Vec::with_capacity(values.len() / 3);
    let mut values = values.into_iter();
    while let (Some(id), Some(attempt), Some(record)) =
        (values.next(), values.next(), values.next())
    {
        let id = match u64::from_redis_value(id) {
            Ok(id) => TaskId(id),
            Err(error) => {
                tracing::error!(%error, "A schedule holds a name that is not a task's id");
                continue;
            }
        };
        if record == Value::Nil {
            tracing::error!(
                task.id = %id,
                "Task {id} was on a schedule without a body; there is nothing to deliver"
            );
            continue;
        }
        let attempt = u32::from_redis_value(attempt).map_err(corrupt);
        let record = Vec::<u8>::from_redis_value(record).map_err(corrupt).and_then(Record::read);
        let (attempt, record) = match attempt.and_then(|attempt| Ok((attempt, record?))) {
            Ok(read) => read,
            // For example, another version wrote it.
            Err(error) => {
                tracing::error!(task.id = %id, %error, "Task {id} cannot be read");
                continue;
            }
        };
        tasks.push(LeasedTask {
            id,
            destination: record.destination,
            attempt,
            due: record.due,
            created: record.created,
            held_until: None,
            options: record.options,
            content: record.content,
        });
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_answer_of_asking_is_not_that_of_the_claim() {
        let (late, mut answers) = mpsc::unbounded_channel();
        late.send(Value::Okay).unwrap();
        late.send(Value::Array(vec![Value::Int(0)])).unwrap();
        drop(late);
        assert_eq!(late_answer(&mut answers).await, Some(Value::Array(vec![Value::Int(0)])));
        assert_eq!(late_answer(&mut answers).await, None);
    }
}
