//! The numbers and the texts of the contract, the same in both stores.

use std::time::Duration;

use crate::model::clock::UnixMillis;

/// The longest time that a [`Store::ping`](super::Store::ping) takes.
pub const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest lease; a longer one is shortened to it.
pub const MAX_LEASE: Duration = Duration::from_secs(12 * 3600);

/// A deadline further away than this counts as expired: the clock must have been set back. It
/// exceeds the longest lease by an hour, so that a smaller correction of the clock ends no lease.
pub const FURTHEST_DEADLINE: Duration = Duration::from_secs(13 * 3600);

/// The last moment: Redis keeps moments as doubles, which are exact up to it. A recurring schedule
/// that has ended is to be looked at then, so each schedule that is not paused has such a moment.
pub const LAST_MOMENT: UnixMillis = UnixMillis((1 << 53) - 1);

/// How many leases may expire in a row before the task dies: the end of a crash loop. Attempts do
/// not count here, because an expiry alone makes no task dead.
pub const MAX_EXPIRIES: u32 = 16;

/// The outcome of a task whose lease expired.
pub const LEASE_RAN_OUT: &str = "lease ran out";

/// The outcome of a task whose receiver acknowledges later.
pub const KEPT: &str = "202 Accepted, to be acknowledged";

/// The outcome of a task that died because its record cannot be read. Nothing of it is deleted.
pub const UNREADABLE: &str = "record cannot be read";

/// The most bytes of content that one claim hands out, including what the caller holds already. A
/// single larger content still goes.
pub const MAX_CLAIM_BYTES: usize = 4 << 20;

/// The most expired leases that one claim sweeps.
pub const MAX_SWEEP: usize = 256;

/// The most due destinations that one [`Outlook`](super::Outlook) names, besides the wanted ones.
pub const MAX_OUTLOOK: usize = 1024;

/// The most receipts of one revision that are remembered. Older holders are refused even a late
/// success.
pub const MAX_RECEIPTS: usize = 4;

/// The longest outcome text that is kept, in bytes.
pub const MAX_OUTCOME: usize = 200;

/// The part of an outcome text that is kept.
pub fn kept_outcome(outcome: &str) -> &str {
    &outcome[..outcome.floor_char_boundary(MAX_OUTCOME)]
}

/// The outcome of a task that expired.
pub const EXPIRED: &str = "not delivered in time";

/// The outcome of a task that fell due while its topic was paused and was not to be delivered late.
pub const MISFIRED: &str = "fell due while the topic was paused";

/// The most pauses of a topic that are remembered. Tasks of older ones are delivered late.
pub const MAX_MISFIRES: usize = 16;

/// The most tasks that one claim ends because they expired or fell due in a pause. While more are
/// left, the outlook's next moment is now.
pub const MAX_ENDED: usize = 512;

/// How long a manual release is remembered: longer than any `Retry-After` hold that it could lift.
pub const RELEASES_KEPT: Duration = Duration::from_secs(25 * 3600);

/// The most notes of attempts that are kept per task; the oldest are removed first.
pub const MAX_NOTES: usize = 16;

/// The most of a response's body that a note keeps, in bytes.
pub const MAX_ANSWER: usize = 2048;

/// The part of a response's body that a note keeps.
pub fn kept_answer(answer: &str) -> &str {
    &answer[..answer.floor_char_boundary(MAX_ANSWER)]
}

/// How long an instance counts as alive after its last heartbeat.
pub const INSTANCE_TTL: Duration = Duration::from_secs(10);

/// The most called destinations of a lane that one sample names.
pub const MAX_SAMPLED: usize = 16;

/// The most steps of a forecast.
pub const MAX_FORECAST: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_outcome_is_cut_between_characters() {
        assert_eq!(kept_outcome("200 OK"), "200 OK");
        assert_eq!(kept_outcome(&"x".repeat(MAX_OUTCOME + 1)).len(), MAX_OUTCOME);
        assert_eq!(kept_outcome(&"单".repeat(MAX_OUTCOME)).len(), MAX_OUTCOME / 3 * 3);
    }
}
