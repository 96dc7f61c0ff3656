//! The Lua scripts by name. Each is a file in `lua/`; `compose` adds the functions of `lua/lib/`
//! that it uses.
//!
//! Scripts are called by their SHA-1 (`EVALSHA`). After a restart or a failover Redis has lost them
//! and answers NOSCRIPT without any effect; `transport/link` then loads them and repeats the call.
//!
//! Scripts that finish work carry `allow-oom`: at `maxmemory`, deliveries must continue, or memory
//! would never be freed.

use std::sync::LazyLock;

use super::compose::compose;

/// A script, and its name in Redis.
#[derive(Debug)]
pub(super) struct Script {
    /// The name of its file.
    name: &'static str,
    /// The whole text.
    pub(super) code: String,
    /// The SHA-1 of the text, in hexadecimal digits.
    pub(super) sha: String,
    /// The number of keys that the text names, if they are those of a lane: the first of
    /// `lua/lib/keys.lua`.
    pub(super) lane_keys: usize,
}

impl Script {
    fn new(flags: &str, name: &'static str, file: &str) -> Self {
        let code = format!("#!lua{flags}\n{}", compose(file));
        let sha = sha1_smol::Sha1::from(&code).digest().to_string();
        let lane_keys = lane_keys(&code);
        Self { name, code, sha, lane_keys }
    }
}

/// At least the prefix of the schedules is a key of each lane script. No key has this name, so a
/// cluster that moves the lane's slot refuses the script until the whole slot has arrived.
const LEAST_LANE_KEYS: usize = 4;

/// The highest number of a key in a text.
fn lane_keys(code: &str) -> usize {
    let number = |rest: &str| rest.split(']').next().and_then(|number| number.parse().ok());
    code.split("KEYS[").skip(1).filter_map(number).fold(LEAST_LANE_KEYS, usize::max)
}

const NORMAL: &str = "";
const WAY_OUT: &str = " flags=allow-oom";
const READ: &str = " flags=no-writes,allow-oom";

/// The text of a file, behind that of another one if there are two.
macro_rules! text {
    ($file:literal $(, $guard:literal)?) => {
        concat!(
            $(include_str!(concat!("lua/", $guard, ".lua")),)?
            include_str!(concat!("lua/", $file, ".lua"))
        )
    };
}

macro_rules! scripts {
    ($($name:ident: $flags:expr, $file:literal $(behind $guard:literal)?;)+) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| {
                let name = concat!($file $(, "_", $guard)?);
                Script::new($flags, name, text!($file $(, $guard)?))
            });)+

        /// All scripts, to be loaded.
        pub(super) fn all() -> Vec<&'static Script> {
            vec![$(&$name),+]
        }

        /// The names and texts of the scripts, before they are composed.
        #[cfg(test)]
        pub(super) fn files() -> &'static [(&'static str, &'static str)] {
            &[$((concat!($file $(, "_", $guard)?), text!($file $(, $guard)?))),+]
        }
    };
}

scripts! {
    IDS: NORMAL, "ids";
    ADD: NORMAL, "add";
    ADD_WITH_OPTIONS: NORMAL, "add_with_options";
    CLAIM: WAY_OUT, "claim";
    SETTLE: WAY_OUT, "settle";
    EXTEND: WAY_OUT, "extend";
    CANCEL: WAY_OUT, "cancel";
    CANCEL_NAMED: WAY_OUT, "cancel" behind "named";
    CANCEL_SELECTED: WAY_OUT, "cancel" behind "selected";
    RESCHEDULE: NORMAL, "reschedule";
    RESCHEDULE_NAMED: NORMAL, "reschedule" behind "named";
    RESCHEDULE_SELECTED: NORMAL, "reschedule" behind "selected";
    REPLAY: WAY_OUT, "replay";
    PURGE: WAY_OUT, "purge";
    DISCARD: WAY_OUT, "discard";
    REMOVE_CONTENTS: WAY_OUT, "remove_contents";
    CLEAR: WAY_OUT, "clear";
    SCHEDULE_SET: NORMAL, "schedule_set";
    SCHEDULE_PAUSE: WAY_OUT, "schedule_pause";
    SCHEDULE_DELETE: WAY_OUT, "schedule_delete";
    SCHEDULES: READ, "schedules";
    SCHEDULES_DUE: READ, "schedules_due";
    PLAN: NORMAL, "plan";
    SCHEDULED: NORMAL, "scheduled";
    LEND: WAY_OUT, "lend";
    STORE_ID: WAY_OUT, "store_id";
    IMPORTED: NORMAL, "imported";
    PRESENT: READ, "present";
    ADOPT: NORMAL, "adopt";
    LEAVE: WAY_OUT, "leave";
    STAMP: WAY_OUT, "stamp";
    CONFIRM: WAY_OUT, "confirm";
    NOTE: NORMAL, "note";
    GET: READ, "get";
    FIND: READ, "find";
    SUMMARIES: READ, "summaries";
    FORECAST: READ, "forecast";
    LIST: READ, "list";
    STATS: READ, "stats";
    NEXT: READ, "next";
    HISTORIES: READ, "histories";
    SAMPLE: READ, "sample";
    HEARTBEAT: WAY_OUT, "heartbeat";
    AUDIT: NORMAL, "audit";
    POLICY: WAY_OUT, "policy";
    PAUSE: WAY_OUT, "pause";
    RESUME: WAY_OUT, "resume";
    FORGET_MISFIRE: WAY_OUT, "forget_misfire";
    REGISTER: NORMAL, "register";
    DEPART: WAY_OUT, "depart";
    UNREGISTER: WAY_OUT, "unregister";
    FSCK_REPAIR: WAY_OUT, "fsck";
    FSCK_LOOK: READ, "fsck";
    FSCK_COUNTER: WAY_OUT, "fsck_counter";
    FSCK_TOPIC: WAY_OUT, "fsck_topic";
    FSCK_CREATED_REPAIR: WAY_OUT, "fsck_created";
    FSCK_CREATED_LOOK: READ, "fsck_created";
}

/// The names of the scripts, and their texts as Redis gets them, for tests that run each alone.
#[doc(hidden)]
pub fn sent() -> Vec<(&'static str, &'static str)> {
    all().into_iter().map(|script| (script.name, script.code.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis makes a string of each key in each call, so each costs time.
    #[test]
    fn a_lane_script_gets_the_keys_that_it_names() {
        let cases = [(&ADD, 4), (&STAMP, 4), (&SETTLE, 12), (&CLAIM, 12), (&NOTE, 16)];
        for (script, keys) in cases {
            assert_eq!(script.lane_keys, keys, "{}", script.name);
        }
    }
}
