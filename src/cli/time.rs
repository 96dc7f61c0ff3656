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

/// A duration as people read it, rounded: `12ms`, `4.2s`, `34s`, `5m`, `25h`.
pub(super) fn lasting(ms: u64) -> String {
    let rounded = |unit: u64| (ms + unit / 2) / unit;
    match ms {
        0 => "0s".into(),
        1..1_000 => format!("{ms}ms"),
        1_000..9_950 if !ms.is_multiple_of(1_000) => {
            format!("{}.{}s", rounded(100) / 10, rounded(100) % 10)
        }
        1_000..119_500 => format!("{}s", rounded(1_000)),
        119_500..7_170_000 => format!("{}m", rounded(60_000)),
        _ => format!("{}h", rounded(3_600_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_one_unit() {
        let check = |ms, expected: &str| assert_eq!(lasting(ms), expected, "{ms}");
        check(0, "0s");
        check(999, "999ms");
        check(3_000, "3s");
        check(4_234, "4.2s");
        check(9_949, "9.9s");
        check(9_950, "10s");
        check(34_296, "34s");
        check(119_499, "119s");
        check(119_500, "2m");
        check(7_169_999, "119m");
        check(7_170_000, "2h");
        check(90_000_000, "25h");
    }

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
