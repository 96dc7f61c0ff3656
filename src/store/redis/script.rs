//! The Lua scripts: one file per verb in `lua/`, those of a lane with `lua/lib/lane.lua` before them (`lua/add.lua` alone goes without) and, between the two, what some of
//! them share. Those that look into many lanes have `lua/lib/lanes.lua` before them.
//!
//! They are called by their SHA-1 (`EVALSHA`). A Redis that restarted or failed over has forgotten them all and
//! answers NOSCRIPT without having done anything; [`super::link`] then loads them and repeats.
//!
//! Scripts on the way out carry `allow-oom`: at `maxmemory` work must go on, or memory never falls.

use std::sync::LazyLock;

/// A script and its name to Redis.
#[derive(Debug)]
pub(super) struct Script {
    /// The whole text.
    pub(super) code: String,
    /// The SHA-1 of the text, in hexadecimal digits.
    pub(super) sha: String,
}

impl Script {
    fn new(flags: &str, parts: &[&str]) -> Self {
        let code = format!("#!lua{flags}\n{}", parts.concat());
        let sha = sha1_smol::Sha1::from(&code).digest().to_string();
        Self { code, sha }
    }
}

const NOW: &str = include_str!("lua/lib/now.lua");
const LANE: &str = concat!(include_str!("lua/lib/now.lua"), include_str!("lua/lib/lane.lua"));
const SAMENESS: &str = include_str!("lua/sameness.lua");
const FORGET: &str = include_str!("lua/lib/forget.lua");
const WHERE: &str = include_str!("lua/lib/where.lua");
const OPEN: &str = include_str!("lua/lib/open.lua");
const REVISION: &str = include_str!("lua/lib/revision.lua");
const LANES: &str = include_str!("lua/lib/lanes.lua");
const NEXT_ALONE: &str = include_str!("lua/next.lua");
const CLAIM_ALONE: &str = include_str!("lua/claim.lua");
const NORMAL: &str = "";
const WAY_OUT: &str = " flags=allow-oom";
const READ: &str = " flags=no-writes,allow-oom";

macro_rules! scripts {
    ($($name:ident: $flags:expr, [$($part:expr),+];)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new($flags, &[$($part),+]));)+

        /// All of them, to be loaded.
        pub(super) fn all() -> Vec<&'static Script> {
            vec![$(&$name),+]
        }
    };
}

scripts! {
    IDS: NORMAL, [include_str!("lua/ids.lua")];
    ADD: NORMAL, [NOW, "local BODIES, OFFSETS = KEYS[1], KEYS[2]\n", OPEN, include_str!("lua/add.lua")];
    ADD_WITH_OPTIONS: NORMAL, [LANE, OPEN, SAMENESS, include_str!("lua/add_with_options.lua")];
    CLAIM: WAY_OUT, [LANE, CLAIM_ALONE];
    SETTLE: WAY_OUT, [LANE, include_str!("lua/settle.lua")];
    EXTEND: WAY_OUT, [LANE, include_str!("lua/extend.lua")];
    CANCEL: WAY_OUT, [LANE, include_str!("lua/cancel.lua")];
    RESCHEDULE: NORMAL, [LANE, include_str!("lua/reschedule.lua")];
    REPLAY: WAY_OUT, [LANE, include_str!("lua/replay.lua")];
    PURGE: WAY_OUT, [LANE, FORGET, include_str!("lua/purge.lua")];
    DISCARD: WAY_OUT, [LANE, FORGET, include_str!("lua/discard.lua")];
    CLEAR: WAY_OUT, [LANE, FORGET, include_str!("lua/clear.lua")];
    LEND: WAY_OUT, [LANE, include_str!("lua/lend.lua")];
    STORE_ID: WAY_OUT, [include_str!("lua/store_id.lua")];
    IMPORTED: NORMAL, [include_str!("lua/imported.lua")];
    PRESENT: READ, [include_str!("lua/present.lua")];
    ADOPT: NORMAL, [LANE, OPEN, SAMENESS, include_str!("lua/adopt.lua")];
    LEAVE: WAY_OUT, [LANE, include_str!("lua/leave.lua")];
    STAMP: WAY_OUT, [LANE, include_str!("lua/stamp.lua")];
    NOTE: NORMAL, [LANE, include_str!("lua/note.lua")];
    GET: READ, [LANE, WHERE, include_str!("lua/get.lua")];
    SUMMARIES: READ, [LANE, WHERE, include_str!("lua/summaries.lua")];
    FORECAST: READ, [LANE, include_str!("lua/forecast.lua")];
    LIST: READ, [LANE, include_str!("lua/list.lua")];
    STATS: READ, [LANE, include_str!("lua/stats.lua")];
    NEXT: READ, [NOW, LANES, NEXT_ALONE];
    HISTORIES: READ, [NOW, LANES, include_str!("lua/histories.lua")];
    POLICY: WAY_OUT, [REVISION, include_str!("lua/policy.lua")];
    PAUSE: WAY_OUT, [NOW, REVISION, include_str!("lua/pause.lua")];
    RESUME: WAY_OUT, [NOW, REVISION, include_str!("lua/resume.lua")];
    FORGET_MISFIRE: WAY_OUT, [REVISION, include_str!("lua/forget_misfire.lua")];
    REGISTER: NORMAL, [REVISION, include_str!("lua/register.lua")];
    DEPART: WAY_OUT, [include_str!("lua/depart.lua")];
    UNREGISTER: WAY_OUT, [REVISION, include_str!("lua/unregister.lua")];
    FSCK_LOOK: READ, [LANE, include_str!("lua/fsck.lua")];
    FSCK_REPAIR: WAY_OUT, [LANE, include_str!("lua/fsck.lua")];
    FSCK_COUNTER: WAY_OUT, [include_str!("lua/fsck_counter.lua")];
    FSCK_TOPIC: WAY_OUT, [REVISION, include_str!("lua/fsck_topic.lua")];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{EXPIRED, FURTHEST_DEADLINE, LEASE_RAN_OUT, MAX_EXPIRIES, MAX_RECEIPTS, MISFIRED, UNREADABLE};

    #[test]
    fn the_scripts_share_the_contracts_numbers() {
        for line in [
            format!("local FURTHEST_DEADLINE_MS = {}", FURTHEST_DEADLINE.as_millis()),
            format!("local MAX_EXPIRIES = {MAX_EXPIRIES}"),
            format!("local MAX_RECEIPTS = {MAX_RECEIPTS}"),
            format!("local LEASE_RAN_OUT = '{LEASE_RAN_OUT}'"),
            format!("local UNREADABLE = '{UNREADABLE}'"),
        ] {
            assert!(LANE.contains(&line), "lane.lua should hold: {line}");
        }
        let line = format!("local FURTHEST_DEADLINE_MS = {}", FURTHEST_DEADLINE.as_millis());
        assert!(NEXT_ALONE.contains(&line), "next.lua should hold: {line}");
        let line = format!("local EXPIRED, MISFIRED = '{EXPIRED}', '{MISFIRED}'");
        assert!(CLAIM_ALONE.contains(&line), "claim.lua should hold: {line}");
    }
}
