//! Runs each Lua script of the Redis store alone, on a real server. A table gives the stored data
//! before, the arguments, the answer, and the changes. The other files test the contract of the
//! stores. These rows show what a script does to the keys.

mod admin;
mod delivery;
mod fsck;
mod intake;
mod maintenance;
mod read;
mod recurring;
mod registry;
mod table;
mod transfer;

use deadpool_redis::redis;

use self::table::{Keys, check, show, text_of};
use crate::redis_server::Server;

/// A test for each script: its keys and its table.
macro_rules! tables {
    ($($script:ident: $keys:ident, $rows:path;)+) => {
        $(#[test]
        fn $script() {
            check(stringify!($script), Keys::$keys, $rows);
        })+

        #[test]
        fn every_script_has_a_table() {
            let sent = delayd::store::redis::script::sent();
            let mut sent: Vec<_> = sent.into_iter().map(|(name, _)| name).collect();
            let mut tested = vec![$(stringify!($script)),+];
            sent.sort_unstable();
            sent.dedup();
            tested.sort_unstable();
            assert_eq!(tested, sent);
        }
    };
}

tables! {
    ids: LastId, intake::IDS;
    add: Add, intake::ADD;
    add_with_options: Lane, intake::ADD_WITH_OPTIONS;
    claim: Lane, delivery::CLAIM;
    settle: Lane, delivery::SETTLE;
    extend: Lane, delivery::EXTEND;
    note: Lane, delivery::NOTE;
    heartbeat: Instances, maintenance::HEARTBEAT;
    audit: Audit, maintenance::AUDIT;
    next: Lanes, delivery::NEXT;
    cancel: Lane, admin::CANCEL;
    cancel_named: Lane, admin::CANCEL_NAMED;
    cancel_selected: Lane, admin::CANCEL_SELECTED;
    reschedule: Lane, admin::RESCHEDULE;
    reschedule_named: Lane, admin::RESCHEDULE_NAMED;
    reschedule_selected: Lane, admin::RESCHEDULE_SELECTED;
    replay: Lane, admin::REPLAY;
    discard: Lane, admin::DISCARD;
    clear: Lane, admin::CLEAR;
    get: Lane, read::GET;
    find: Lanes, read::FIND;
    summaries: Lane, read::SUMMARIES;
    list: Lane, read::LIST;
    stats: Lane, read::STATS;
    forecast: Lane, read::FORECAST;
    sample: Lanes, read::SAMPLE;
    schedule_set: Lane, recurring::SET;
    schedule_pause: Lane, recurring::PAUSE;
    schedule_delete: Lane, recurring::DELETE;
    schedules: Lane, recurring::READ;
    schedules_due: Lane, recurring::DUE;
    plan: Lane, recurring::PLAN;
    scheduled: Registry, recurring::SCHEDULED;
    lend: Lane, transfer::LEND;
    adopt: Lane, transfer::ADOPT;
    present: Add, transfer::PRESENT;
    imported: Store, transfer::IMPORTED;
    store_id: Store, transfer::STORE_ID;
    purge: Lane, maintenance::PURGE;
    remove_contents: Lane, maintenance::REMOVE_CONTENTS;
    histories: Lanes, maintenance::HISTORIES;
    leave: Lane, maintenance::LEAVE;
    stamp: Lane, maintenance::STAMP;
    confirm: Confirmation, maintenance::CONFIRM;
    register: Registry, registry::REGISTER;
    policy: Registry, registry::POLICY;
    pause: Registry, registry::PAUSE;
    resume: Registry, registry::RESUME;
    forget_misfire: Registry, registry::FORGET_MISFIRE;
    depart: Registry, registry::DEPART;
    unregister: Registry, registry::UNREGISTER;
    fsck: LaneAndAside, fsck::FSCK;
    fsck_counter: LastId, fsck::FSCK_COUNTER;
    fsck_topic: Registry, fsck::FSCK_TOPIC;
    fsck_created: Registry, fsck::FSCK_CREATED;
}

/// Each claim set the lock and removed it, which Redis wrote to its log and sent to its replicas.
#[test]
fn a_claim_that_finds_nothing_writes_nothing() {
    let server = Server::start();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let names = Keys::Lane.names();
    server.command(&["ZADD", names[2], "9000", "shop"]);
    server.command(&["ZADD", &format!("{}shop", names[3]), "9000", "1"]);
    let changes = || {
        let info = server.command(&["INFO", "persistence"]);
        let line = info.lines().find(|line| line.starts_with("rdb_changes_since_last_save:"));
        line.unwrap().to_owned()
    };
    let before = changes();
    let args = ["r", "2000", "me", "1", "0", "100", "1000", "10", "100", "", "0", "shop", "5"];
    let mut call = redis::cmd("EVAL");
    call.arg(text_of("claim")).arg(names.len()).arg(&names).arg(1_000).arg(&args);
    let answer = call.query(&mut connection).unwrap();
    assert_eq!(show(&answer), "[1, 1000, [], [], 9000]");
    assert_eq!(changes(), before);
}

/// The claim of the last program of format 1, as it was sent to Redis.
const CLAIM_OF_FORMAT_1: &str = include_str!("../support/snapshots/format_1/claim.lua");

/// An instance of an older version runs until it notices that the format was raised, within a
/// second or two. It hands out occurrences as ordinary tasks, and damages nothing.
#[test]
fn a_claim_of_format_1_hands_out_occurrences_and_leaves_schedules_alone() {
    let server = Server::start();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let names = Keys::Lane.names();
    let record = concat!(
        "1 500 400 shop {\"schedule\":{\"name\":\"a\",\"moment\":500,\"cursor\":\"c\",",
        "\"after\":6,\"missed\":0}}\nhello"
    );
    server.command(&["HSET", names[0], "7", record, "6", "1 500 400 shop -\nhello"]);
    server.command(&["ZADD", names[2], "500", "shop"]);
    server.command(&["ZADD", &format!("{}shop", names[3]), "500", "7", "9000", "6"]);
    server.command(&["HSET", names[16], "a", "1 0f 400 400 c 400,- - - 6 7@500\n{}"]);
    server.command(&["ZADD", names[17], "500", "a"]);
    let args = ["r", "2000", "me", "1", "0", "100", "1000", "10", "100", "", "0", "shop", "5"];
    let mut call = redis::cmd("EVAL");
    call.arg(CLAIM_OF_FORMAT_1).arg(12).arg(&names[..12]).arg(1_000).arg(&args);
    let answer = show(&call.query(&mut connection).unwrap());
    assert!(answer.contains(&record.replace('\n', "|")), "{answer}");
    assert_eq!(server.command(&["ZCARD", names[5]]).trim(), "1", "one is leased");
    assert_eq!(server.command(&["HGET", names[0], "7"]).trim_end_matches('\n'), record);
    let schedule = server.command(&["HGET", names[16], "a"]);
    assert!(schedule.starts_with("1 0f 400 400 c 400,- - - 6 7@500\n"), "{schedule}");
    assert_eq!(server.command(&["ZSCORE", names[17], "a"]).trim(), "500");
}
