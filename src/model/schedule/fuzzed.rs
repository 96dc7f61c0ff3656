//! The body of the fuzz target `schedule`: any rule is read or refused with a sentence, and a rule
//! that was read has nominal moments that grow, after bounded work.

use std::time::Duration;

use super::{LocalCursor, Nominal, Recurrence, Rule};
use crate::model::clock::UnixMillis;

/// The longest error message.
const SENTENCE: usize = 500;
/// 2026-11-21T04:16:07Z.
const NOW: UnixMillis = UnixMillis(1_795_234_567_000);
/// Shortly before New York repeats an hour, 2026-11-01T05:50:00Z.
const REPEAT: UnixMillis = UnixMillis(1_793_512_200_000);
/// For how long missed moments are counted.
const MISSED: Duration = Duration::from_secs(10 * 86_400);

/// Reads the bytes as a cron expression, a line break and the name of a zone; and as a cursor.
pub fn schedule(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (cron, zone) = text.split_once('\n').unwrap_or((text, "America/New_York"));
    let read = Recurrence::parse(&Rule {
        cron: Some(cron),
        every: None,
        zone,
        start: None,
        end: None,
        anchor: NOW,
    });
    match read {
        Err(refused) => {
            let sentence = refused.to_string();
            assert!(!sentence.is_empty() && sentence.len() <= SENTENCE, "{sentence:?}");
        }
        Ok(recurrence) => {
            moments(&recurrence, REPEAT);
            missed(&recurrence, moments(&recurrence, NOW));
        }
    }
    if let Ok(cursor) = text.parse::<LocalCursor>() {
        assert_eq!(cursor.to_string(), text);
    }
}

/// The nominal moments after `now` grow. Returns the first.
fn moments(recurrence: &Recurrence, now: UnixMillis) -> Nominal {
    let first = recurrence.first_after(now).expect("a rule that was read fires");
    let mut last = first;
    for passed in 0..50 {
        assert_eq!(recurrence.missed(&first.cursor, last.moment), passed);
        assert_eq!(recurrence.resolve(&last.cursor), last.moment);
        let next = recurrence.next_after(&last.cursor).expect("it goes on");
        assert!(next.moment > last.moment, "{next:?} after {last:?}");
        assert_eq!(recurrence.first_after(last.moment), Some(next));
        last = next;
    }
    first
}

fn missed(recurrence: &Recurrence, first: Nominal) {
    let end = NOW + MISSED;
    let missed = recurrence.missed(&first.cursor, end);
    if let Some(backlog) = recurrence.backlog(&first.cursor, end, 10) {
        assert_eq!(backlog.count + backlog.dropped, missed);
        assert_eq!(recurrence.missed(&backlog.first.cursor, end) + 1, backlog.count);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_rule_is_refused_or_fires() {
        crate::testing::seeds::run("schedule", super::schedule);
    }
}
