//! Polls many lanes at once: what is next in each, and what a purge would find.
//!
//! One script answers for many lanes, so polling a thousand idle topics costs a few milliseconds
//! and a few dozen packets per second. In a cluster a script answers for one lane, because each
//! lane has its own slot.
//!
//! A poll is sent in at most [`PIPELINES`] pipelines, one after the other, unless it has more than
//! 16,384 lanes. It has a connection of its own. The others do not wait for it: Redis serves them
//! after each few scripts of a pipeline.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};
use futures_util::future::join_all;

use super::answer::corrupt;
use super::script::{self, Script};
use super::session::Session;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use super::transport::refusal::CommandRefusal;
use super::transport::servers::ServerRoute;
use super::{destination, identity, instances};
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::{Error, Histories, LaneHistory, Look, Looked, NextDue, Result, Revision};

/// The most lanes of one script call: some tenths of a millisecond.
pub(super) const LANES_A_SCRIPT: usize = 64;
/// The number of pipelines that a poll aims at.
const PIPELINES: usize = 2;
/// The lanes of one pipeline, if there are as many. More than the upper bound never go together.
const LANES_A_PIPELINE: RangeInclusive<usize> = 512..=8_192;

const NEXT: LanesScript = (&script::NEXT, LANES_A_SCRIPT);

/// Whose next moments are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Called destinations, and whatever expires.
    Workers,
    /// Pulled tasks.
    Consumers,
    /// Recurring schedules.
    Planners,
}

impl Audience {
    /// The script's argument.
    const fn word(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Consumers => "consumers",
            Self::Planners => "planners",
        }
    }
}

impl Session {
    pub(crate) async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        next(self, Audience::Workers, &lanes).await
    }

    pub(crate) async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        next(self, Audience::Consumers, &lanes).await
    }

    /// What each instance polls every second: one pipeline per server, up to its bound. The
    /// registry is read only if its revision has changed.
    pub(crate) async fn look(&self, look: Look) -> Looked {
        let [held, released] = destination::ask_holds(self);
        let before = [
            cmd("GET").arg(self.keys.revision()).take(),
            identity::ask(&self.keys),
            held,
            released,
            instances::beat(self, look.heartbeat.as_ref()),
        ];
        let asked = [
            (Audience::Workers, &look.workers[..]),
            (Audience::Consumers, &look.consumers),
            (Audience::Planners, &look.planners),
        ];
        let asked = asked.map(|(audience, lanes)| (audience.word(), lanes));
        let (answers, told) =
            ask_lanes(self, &self.polling, &before, NEXT, &asked, read_moment).await;
        let [revision, id, held, released, living] = <[_; 5]>::try_from(answers)
            .unwrap_or_else(|_| [0; 5].map(|_| Err(corrupt("too little"))));
        let instances = living.and_then(instances::read);
        identity::take_in(self, id).await;
        let holds = held.and_then(|held| destination::read_holds([held, released?]));
        let revision =
            revision.and_then(|answer| Option::<u64>::from_redis_value(answer).map_err(corrupt));
        let registry = match revision.map(|revision| Revision(revision.unwrap_or_default())) {
            Err(error) => Err(error),
            Ok(revision) if Some(revision) == look.seen => Ok(None),
            Ok(revision) => self.topics().await.map(|topics| Some((revision, topics))),
        };
        let without_answer = |group: usize, lanes: &[Lane]| match told.get(group) {
            Some(Ok((_, told))) => {
                let answers = lanes.iter().zip(told);
                answers.filter(|(_, told)| told.is_none()).map(|(lane, _)| lane.clone()).collect()
            }
            _ => Vec::new(),
        };
        let (unanswered, unknown) =
            (without_answer(0, &look.workers), without_answer(1, &look.consumers));
        let mut told = told.into_iter();
        let mut of = |lanes: &[Lane]| match told.next() {
            Some(told) if !lanes.is_empty() => next_due(told).map(Some),
            _ => Ok(None),
        };
        let (next, pulls, plans) = (of(&look.workers), of(&look.consumers), of(&look.planners));
        Looked { registry, holds, next, pulls, plans, unknown, unanswered, instances }
    }

    /// What a purge would find in each lane.
    pub(crate) async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        let script = (&script::HISTORIES, LANES_A_SCRIPT);
        let asked = [("", &lanes[..])];
        let told = ask_lanes(self, &self.polling, &[], script, &asked, read_history).await.1;
        let (now, lanes) = told.into_iter().next().unwrap_or_else(|| Err(corrupt("too little")))?;
        Ok(Histories { now, lanes })
    }
}

/// The next moments of lanes. Nothing is known of a lane whose server is unreachable; fails only if
/// that is so for all lanes.
pub(super) async fn next(session: &Session, audience: Audience, lanes: &[Lane]) -> Result<NextDue> {
    let asked = [(audience.word(), lanes)];
    let told = ask_lanes(session, &session.polling, &[], NEXT, &asked, read_moment).await.1;
    told.into_iter().next().map_or_else(|| Err(corrupt("too little")), next_due)
}

fn next_due(told: Result<PollAnswers<Option<UnixMillis>>>) -> Result<NextDue> {
    told.map(|(now, told)| NextDue { now, lanes: told.into_iter().map(Option::flatten).collect() })
}

/// The time of the first server that answers, and an answer for each lane; `None` if its server did
/// not answer.
pub(super) type PollAnswers<T> = (UnixMillis, Vec<Option<T>>);

/// A script over lanes, and the most lanes of one call.
pub(super) type LanesScript = (&'static LazyLock<Script>, usize);

/// Calls a script over groups of lanes, each with an argument of its own, and reads the answers
/// with `read`. The first pipeline begins with the commands in `before`, whose answers come first.
pub(super) async fn ask_lanes<T>(
    session: &Session,
    route: &ServerRoute,
    before: &[Cmd],
    (script, most): LanesScript,
    groups: &[(&str, &[Lane])],
    read: impl Fn(Value) -> Result<T>,
) -> (Vec<Result<Value>>, Vec<Result<PollAnswers<T>>>) {
    let a_script = if session.servers.is_cluster() { 1 } else { most };
    let mut calls: Vec<PollCall<'_>> = Vec::new();
    for (group, &(word, lanes)) in groups.iter().enumerate() {
        calls.extend(lanes.chunks(a_script).map(|lanes| (group, word, lanes)));
    }
    let mut answered_before = Vec::new();
    let mut gathered: Vec<LaneAnswers<T>> = groups.iter().map(|_| LaneAnswers::default()).collect();
    for calls in pipelines(&calls, a_script) {
        let call = |&(_, word, lanes): &PollCall<'_>| {
            let keys: Vec<String> =
                lanes.iter().map(|lane| session.keys.destinations(lane)).collect();
            session.call(script, &keys).arg(word).take()
        };
        let before = if answered_before.is_empty() { before } else { &[] };
        let commands: Vec<Cmd> = before.iter().cloned().chain(calls.iter().map(call)).collect();
        let mut answers = route.run_repeatable(&commands).await;
        answered_before.extend(answers.drain(..before.len()));
        for (&(group, _, lanes), answer) in calls.iter().zip(answers) {
            gathered[group]
                .add(lanes, answer.and_then(|answer| read_answer(answer, lanes.len(), &read)));
        }
    }
    let mut told = Vec::with_capacity(groups.len());
    for LaneAnswers { now, lanes, failed } in gathered {
        told.push(match (now, failed) {
            (Some(now), _) => Ok((now, lanes)),
            (None, Some(error)) => Err(error),
            // The group has no lanes.
            (None, None) if before.is_empty() => time(session).await.map(|now| (now, lanes)),
            (None, None) => Ok((UnixMillis(0), lanes)),
        });
    }
    (answered_before, told)
}

/// One script call: the place of its group, the group's argument, and the lanes.
type PollCall<'a> = (usize, &'a str, &'a [Lane]);

/// Splits calls of at most `a_script` lanes into pipelines. There is at least one.
fn pipelines<'a, 'b>(calls: &'a [PollCall<'b>], a_script: usize) -> Vec<&'a [PollCall<'b>]> {
    if calls.is_empty() {
        return vec![calls];
    }
    let all: usize = calls.iter().map(|(.., lanes)| lanes.len()).sum();
    // A pipeline may stay short of its bound by less than a script.
    let bound = (all.div_ceil(PIPELINES) + a_script)
        .clamp(*LANES_A_PIPELINE.start(), *LANES_A_PIPELINE.end());
    let mut count = calls[0].2.len();
    let fits = |_: &PollCall<'_>, (.., lanes): &PollCall<'_>| {
        let fits = count + lanes.len() <= bound;
        count = lanes.len() + if fits { count } else { 0 };
        fits
    };
    calls.chunk_by(fits).collect()
}

/// What is known of a group of lanes so far.
struct LaneAnswers<T> {
    now: Option<UnixMillis>,
    lanes: Vec<Option<T>>,
    failed: Option<Error>,
}

impl<T> Default for LaneAnswers<T> {
    fn default() -> Self {
        Self { now: None, lanes: Vec::new(), failed: None }
    }
}

impl<T> LaneAnswers<T> {
    fn add(&mut self, lanes: &[Lane], answer: Result<(UnixMillis, Vec<T>)>) {
        match answer {
            Ok((now, those)) => {
                self.now = self.now.or(Some(now));
                self.lanes.extend(those.into_iter().map(Some));
            }
            Err(error) => {
                tracing::debug!(lane = %lanes[0], %error, "Could not poll a lane");
                self.lanes.extend(lanes.iter().map(|_| None));
                self.failed = Some(error);
            }
        }
    }
}

fn read_answer<T>(
    answer: Value,
    count: usize,
    read: impl Fn(Value) -> Result<T>,
) -> Result<(UnixMillis, Vec<T>)> {
    let Value::Array(fields) = answer else { return Err(corrupt("no list")) };
    if fields.len() != count + 1 {
        return Err(corrupt("too few lanes"));
    }
    let mut fields = fields.into_iter();
    let now = i64::from_redis_value(fields.next().unwrap_or_default()).map_err(corrupt)?;
    Ok((UnixMillis(now), fields.map(read).collect::<Result<_>>()?))
}

/// A moment; an empty text means none.
fn read_moment(told: Value) -> Result<Option<UnixMillis>> {
    match told {
        Value::Int(moment) => Ok(Some(UnixMillis(moment))),
        Value::BulkString(none) if none.is_empty() => Ok(None),
        _ => Err(corrupt("no moment")),
    }
}

fn read_history(told: Value) -> Result<LaneHistory> {
    let Value::Array(fields) = told else { return Ok(LaneHistory::default()) };
    let [ended, oldest, leftovers, schedules] =
        <[Value; 4]>::try_from(fields).map_err(|_| corrupt("too few fields"))?;
    let count = |value| u64::from_redis_value(value).map_err(corrupt);
    Ok(LaneHistory {
        ended: count(ended)?,
        oldest: read_moment(oldest)?,
        has_leftovers: count(leftovers)? > 0,
        has_schedules: count(schedules)? > 0,
    })
}

/// The time of the first server that answers. All are asked at once.
async fn time(session: &Session) -> Result<UnixMillis> {
    let map = session.servers.map();
    let asking = map.nodes().iter().map(async |node| {
        let answers = node.link(Purpose::Working).run(&[cmd("TIME")], Repeat::Once).await?;
        let time = answers
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(CommandRefusal::Failed(corrupt("no time"))));
        session.read_time(time.map_err(CommandRefusal::into_error)?)
    });
    let mut told = Err(Error::Unavailable("no server is known".into()));
    for time in join_all(asking).await {
        told = told.or(time);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lanes of each pipeline for groups of lanes.
    fn lanes_of(groups: &[usize], a_script: usize) -> Vec<usize> {
        let lane = Lane { topic: "t".parse().unwrap(), shard: 0 };
        let lanes = vec![lane; groups.iter().copied().max().unwrap_or_default()];
        let calls: Vec<PollCall<'_>> = groups
            .iter()
            .flat_map(|&count| lanes[..count].chunks(a_script))
            .map(|lanes| (0, "", lanes))
            .collect();
        let pipelines = pipelines(&calls, a_script);
        assert_eq!(pipelines.concat().len(), calls.len());
        let lanes = |calls: &&[PollCall<'_>]| calls.iter().map(|(.., lanes)| lanes.len()).sum();
        pipelines.iter().map(lanes).collect()
    }

    #[test]
    fn few_pipelines_hold_all_lanes() {
        assert_eq!(lanes_of(&[], 64), [0]);
        assert_eq!(lanes_of(&[1], 64), [1]);
        assert_eq!(lanes_of(&[512], 64), [512]);
        assert_eq!(lanes_of(&[600], 64), [512, 88]);
        assert_eq!(lanes_of(&[10_000], 64), [5_056, 4_944]);
        assert_eq!(lanes_of(&[9_999, 1], 1), [5_001, 4_999]);
        assert_eq!(lanes_of(&[1; 512], 16), [512], "each lane has a group of its own");
        for lanes in (1..16_000).step_by(97) {
            assert!(lanes_of(&[lanes, 7], 64).len() <= PIPELINES, "{lanes}");
        }
    }

    #[test]
    fn a_pipeline_is_bounded() {
        assert_eq!(lanes_of(&[20_000], 64), [8_192, 8_192, 3_616]);
    }
}
