//! Notes of attempts: a few lines of JSON per task, for people.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, cmd};
use serde::{Deserialize, Serialize};

use super::answer::corrupt;
use super::script;
use super::session::Session;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, TaskId};
use crate::store::{AttemptNote, MAX_NOTES, Result, kept_answer, kept_outcome};

/// The most notes of one script call.
const MOST: usize = 250;

/// A note as it is stored. Fields may be added.
#[derive(Debug, Serialize, Deserialize)]
struct NoteLine {
    attempt: u32,
    started_ms: i64,
    took_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    outcome: String,
    answer: String,
}

impl Session {
    /// Writes notes. Sent only once: a repetition after a lost answer would write them twice.
    pub(crate) async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        let mut lanes: HashMap<&Lane, Vec<&AttemptNote>> = HashMap::new();
        for note in &notes {
            lanes.entry(&note.lane).or_default().push(note);
        }
        let mut calls = Vec::new();
        for (lane, notes) in lanes {
            for chunk in notes.chunks(MOST) {
                let mut call = self.lane_call(&script::NOTE, lane);
                call.arg(MAX_NOTES);
                for note in chunk {
                    call.arg(note.id.0).arg(write(note));
                }
                calls.push(call);
            }
        }
        let answers = self.servers.run(Purpose::Working, &calls, Repeat::Never).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    pub(crate) async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> {
        let read = cmd("HGET").arg(self.keys.notes(lane)).arg(id.0).take();
        let kept = Option::<Vec<u8>>::from_redis_value(self.reading.run_one(read).await?)
            .map_err(corrupt)?;
        let kept = kept.unwrap_or_default();
        // A line that cannot be read harms no task.
        let lines = kept
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<NoteLine>(line).ok());
        let read = |line: NoteLine| AttemptNote {
            lane: lane.clone(),
            id,
            attempt: line.attempt,
            started: UnixMillis(line.started_ms),
            took: Duration::from_millis(line.took_ms),
            wait: line.wait_ms.map(Duration::from_millis),
            outcome: line.outcome,
            answer: line.answer,
        };
        Ok(lines.map(read).collect())
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn write(note: &AttemptNote) -> String {
    let line = NoteLine {
        attempt: note.attempt,
        started_ms: note.started.0,
        took_ms: millis(note.took),
        wait_ms: note.wait.map(millis),
        outcome: kept_outcome(&note.outcome).to_owned(),
        answer: kept_answer(&note.answer).to_owned(),
    };
    serde_json::to_string(&line).expect("texts and numbers are plain data")
}
