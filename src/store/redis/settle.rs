//! Settles and extends leases.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_redis::redis::FromRedisValue;

use super::answer::{corrupt, state, text};
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Receipt, TaskId};
use crate::store::{
    Asker, Hint, KEPT, MAX_LEASE, MOVED, Moment, Result, Settle, Settled, Transition, kept_outcome,
};

/// The most settles of one script call.
const MOST: usize = 64;

fn settled(answer: &str) -> Result<Settled> {
    match answer {
        "done" => Ok(Settled::Done),
        "done cancelled" => Ok(Settled::Cancelled),
        "unknown" => Ok(Settled::Unknown),
        _ if put_back(answer).is_some() => Ok(Settled::Done),
        name => Ok(Settled::Stale { state: state(name)? }),
    }
}

/// The due moment of what a settle put on a schedule, and whether it is pulled.
fn put_back(answer: &str) -> Option<(bool, UnixMillis)> {
    let (way, due) = answer.split_once(' ')?;
    Some((way == "pull", UnixMillis(due.parse().ok()?)))
}

/// Hints at the tasks that settles put on a schedule.
fn hint(session: &Session, lane: &Lane, answers: &[String]) {
    let back: Vec<_> = answers.iter().filter_map(|answer| put_back(answer)).collect();
    for is_pull in [false, true] {
        let due = back.iter().filter(|(pulled, _)| *pulled == is_pull).map(|(_, due)| *due).min();
        if let Some(due) = due {
            session.hints.tell(Hint { lane: lane.clone(), due, is_pull });
        }
    }
}

impl Session {
    pub(crate) async fn settle(&self, asker: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let mut lanes: HashMap<&Lane, Vec<usize>> = HashMap::new();
        for (i, settle) in settles.iter().enumerate() {
            lanes.entry(&settle.lane).or_default().push(i);
        }
        let mut calls = Vec::new();
        let mut called = Vec::new();
        for (lane, members) in &lanes {
            for chunk in members.chunks(MOST) {
                let mut call = self.lane_call(&script::SETTLE, lane);
                for &i in chunk {
                    let (verb, wait, outcome) = write(&settles[i].transition);
                    call.arg(settles[i].id.0).arg(settles[i].receipt.as_str()).arg(verb);
                    match wait {
                        Moment::After(wait) => call.arg(wait.as_millis() as u64),
                        Moment::At(moment) => call.arg(format!("@{}", moment.0.max(0))),
                    };
                    call.arg(outcome);
                }
                calls.push(call);
                called.push((*lane, chunk));
            }
        }
        let mut answers = vec![Err(corrupt("too little")); settles.len()];
        for ((lane, chunk), reply) in
            called.into_iter().zip(self.route_of(asker).run_repeatable(&calls).await)
        {
            match reply.and_then(|words| Vec::<String>::from_redis_value(words).map_err(corrupt)) {
                Ok(words) => {
                    hint(self, lane, &words);
                    chunk.iter().zip(words).for_each(|(&i, word)| answers[i] = settled(&word));
                }
                Err(error) => chunk.iter().for_each(|&i| answers[i] = Err(error.clone())),
            }
        }
        answers
    }

    pub(crate) async fn extend(
        &self,
        asker: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        let call = self
            .lane_call(&script::EXTEND, lane)
            .arg(id.0)
            .arg(receipt.as_str())
            .arg(lease.min(MAX_LEASE).as_millis() as u64)
            .take();
        settled(&text(self.route_of(asker).run_one(call).await?)?)
    }
}

fn write(transition: &Transition) -> (&'static str, Moment, &str) {
    const NONE: Moment = Moment::After(Duration::ZERO);
    match transition {
        Transition::Delivered { outcome } => ("delivered", NONE, kept_outcome(outcome)),
        Transition::Moved => ("moved", NONE, MOVED),
        Transition::Retry { due, outcome } => ("retry", *due, kept_outcome(outcome)),
        Transition::Dead { outcome } => ("dead", NONE, kept_outcome(outcome)),
        Transition::Release => ("release", NONE, ""),
        Transition::Keep { lease } => ("keep", Moment::After((*lease).min(MAX_LEASE)), KEPT),
    }
}
