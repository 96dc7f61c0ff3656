//! The body of the fuzz target `time`: any text is read as a time, or refused with a sentence.
//! A time that was read is the same when it is written again, and the same as jiff reads it.

use jiff::Timestamp;

use super::{InvalidTime, MAX_TEXT, WrittenTime, read};
use crate::model::clock::UnixMillis;
use crate::model::zone::Zone;

/// The longest error message: the longest text with all characters escaped, and what was expected.
const SENTENCE: usize = 10 * MAX_TEXT + 200;

/// Reads the bytes as a time; those after a line break are the zone beside it.
pub fn time(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, zone) = match text.split_once('\n') {
        Some((text, zone)) => (text, Some(zone)),
        None => (text, None),
    };
    match read(text, zone) {
        Err(InvalidTime::Time(sentence) | InvalidTime::Zone(sentence)) => {
            assert!(sentence.starts_with("expected ") && sentence.len() <= SENTENCE, "{sentence}");
        }
        Ok(read) => agrees(text, &read),
    }
}

fn agrees(text: &str, written: &WrittenTime) {
    let WrittenTime { moment, zone } = written;
    let (shown, utc) = (zone.rfc3339(*moment), Zone::UTC.rfc3339(*moment));
    // In another zone than its own, it may be before the year 0000 or after 9999.
    if [&shown, &utc].iter().any(|shown| shown.as_bytes().get(4) != Some(&b'-')) {
        return;
    }
    let again = read(&shown, None).map(|again| again.moment);
    assert_eq!(again.as_ref(), Ok(moment), "{text:?} is {shown}");
    assert_eq!(read(&utc, Some(&zone.name())).as_ref(), Ok(written), "{text:?} is {utc}");
    // jiff reads a leap second as the second before it, and refuses some that this reader takes.
    if let Some(theirs) = text.parse::<Timestamp>().ok().filter(|_| !text.contains(":60")) {
        let millis = theirs.as_nanosecond().div_euclid(1_000_000)
            + i128::from(theirs.as_nanosecond().rem_euclid(1_000_000) > 0);
        assert_eq!(Ok(moment.0), i64::try_from(millis), "{text:?}");
        assert!(*moment >= UnixMillis(theirs.as_millisecond()), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_text_is_a_time_or_refused_in_a_sentence() {
        crate::testing::seeds::run("time", super::time);
    }
}
