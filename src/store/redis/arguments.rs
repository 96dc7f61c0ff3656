//! What several verbs write into the calls of scripts: moments, and tasks in calls of bounded
//! length.

use std::io::Write;

use deadpool_redis::redis::{Cmd, RedisWrite};

use crate::store::Moment;

/// The most tasks of one script call: half a millisecond where Redis has a processor to itself.
const MOST_TASKS: usize = 128;
/// The most body bytes of one script call; a batch ends with the request that reaches them.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// Splits a lane's tasks into script calls of bounded length. `length` is that of a task's content.
pub(super) fn chunks<T>(tasks: Vec<T>, length: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut chunks: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for task in tasks {
        let length = length(&task);
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < MOST_TASKS && bytes + length <= MOST_BYTES => {
                chunk.push(task);
                bytes += length;
            }
            _ => {
                chunks.push(vec![task]);
                bytes = length;
            }
        }
    }
    chunks
}

/// A moment as the scripts read it: `<ms>`, or `+<ms>` after now.
pub(super) fn write_moment(command: &mut Cmd, moment: Moment) {
    match moment {
        Moment::At(at) => {
            command.arg(at.0.max(0));
        }
        Moment::After(delay) => {
            let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            let mut digits = itoa::Buffer::new();
            let mut argument = command.writer_for_next_arg();
            for part in ["+", digits.format(millis)] {
                argument.write_all(part.as_bytes()).expect("a command grows");
            }
        }
    }
}
