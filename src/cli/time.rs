//! The text forms of moments and lateness.

use std::sync::OnceLock;

use crate::model::clock::UnixMillis;
use crate::model::zone::Zone;

/// The zone of tables; UTC until it is set.
static ZONE: OnceLock<Zone> = OnceLock::new();

/// Shows the moments of tables in UTC, or else in the zone of this machine. The first call counts.
pub(super) fn show_in_utc(is_utc: bool) {
    ZONE.get_or_init(|| if is_utc { Zone::UTC } else { Zone::of_machine() });
}

/// A moment of a table: RFC 3339 with milliseconds and the offset of the zone,
/// `2026-11-21T20:30:00.000+08:00`.
pub(super) fn local(moment: UnixMillis) -> String {
    ZONE.get().unwrap_or(&Zone::UTC).rfc3339(moment)
}

/// RFC 3339 in UTC with milliseconds: `2026-11-21T12:30:00.000Z`.
pub(super) fn rfc3339(moment: UnixMillis) -> String {
    moment.rfc3339()
}

/// The lateness with its sign: `+2 ms`, `-1 ms`.
pub(super) fn lateness(due: UnixMillis, arrived: UnixMillis) -> String {
    format!("{:+} ms", arrived.0.saturating_sub(due.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_their_milliseconds() {
        let check = |millis: i64, expected: &str| assert_eq!(rfc3339(UnixMillis(millis)), expected);
        check(0, "1970-01-01T00:00:00.000Z");
        check(1_795_234_567_042, "2026-11-21T04:16:07.042Z");
        check(i64::MAX, "9223372036854775807");
    }

    #[test]
    fn lateness_has_a_sign() {
        assert_eq!(lateness(UnixMillis(10), UnixMillis(12)), "+2 ms");
        assert_eq!(lateness(UnixMillis(10), UnixMillis(10)), "+0 ms");
        assert_eq!(lateness(UnixMillis(10), UnixMillis(9)), "-1 ms");
    }
}
