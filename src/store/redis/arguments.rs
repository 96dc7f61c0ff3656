//! Arguments that several kinds of script calls share: moments, and chunks of tasks.

use std::io::Write;

use deadpool_redis::redis::{Cmd, RedisWrite};

use crate::store::Moment;

/// The most tasks of one script call: half a millisecond if Redis has a processor to itself.
pub(super) const MOST_TASKS: usize = 128;
/// The most bytes of content in one script call. A batch ends with the request that reaches them.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// Splits a lane's tasks into script calls of bounded length. `length` returns the length of a
/// task's content.
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

/// Writes a moment as the scripts read it: `<ms>`, or `+<ms>` after now.
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
