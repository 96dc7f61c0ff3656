//! The scripts of the janitor, and the scripts that close lanes.

use super::table::Row;

const ENDED: &[&str] = &[
    "bodies 1 = 1 500 400 shop -|hello",
    "entries 1 = 1 0 delivered - r * shop 200 OK",
    "delivered 1 @ 600",
    "bodies 2 = 1 500 400 shop -|second",
    "entries 2 = 1 0 delivered - r * shop 200 OK",
    "delivered 2 @ 800",
];

pub(super) const REMOVE_CONTENTS: &[Row] = &[
    Row {
        case: "ended tasks",
        before: &[ENDED],
        args: &["1000", "1", "2", "3"],
        answer: "3",
        after: &[
            "- bodies 1 = 1 500 400 shop -|hello",
            "- bodies 2 = 1 500 400 shop -|second",
            "+ bodies 1 = 1 500 400 shop {\"removed\":\"aaf4c61ddcc5e8a2\"}|",
            "+ bodies 2 = 1 500 400 shop {\"removed\":\"352f7829a2384b00\"}|",
        ],
    },
    Row {
        case: "the digest is the last option",
        before: &[&[
            "bodies 1 = 1 500 400 shop {\"key\":\"k\"}|hello",
            "entries 1 = 0 0 cancelled - * * shop ",
        ]],
        args: &["1000", "1"],
        answer: "1",
        after: &[
            "- bodies 1 = 1 500 400 shop {\"key\":\"k\"}|hello",
            "+ bodies 1 = 1 500 400 shop {\"key\":\"k\",\"removed\":\"aaf4c61ddcc5e8a2\"}|",
        ],
    },
    Row {
        case: "a bounded number of bytes",
        before: &[ENDED],
        args: &["10", "1", "2"],
        answer: "1",
        after: &[
            "- bodies 1 = 1 500 400 shop -|hello",
            "+ bodies 1 = 1 500 400 shop {\"removed\":\"aaf4c61ddcc5e8a2\"}|",
        ],
    },
    Row {
        case: "others keep theirs: dead, leased, waiting, without content, unreadable",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 dead - r * shop 200 OK",
            "bodies 2 = 1 500 400 shop -|hello",
            "entries 2 = 1 0 ! w r * shop ",
            "bodies 3 = 1 500 400 shop -|hello",
            "bodies 4 = 1 500 400 shop {\"removed\":\"aaf4c61ddcc5e8a2\"}|",
            "entries 4 = 1 0 delivered - r * shop 200 OK",
            "bodies 5 = what",
            "entries 5 = 1 0 delivered - r * shop 200 OK",
        ]],
        args: &["1000", "1", "2", "3", "4", "5"],
        answer: "5",
        after: &[],
    },
];

pub(super) const PURGE: &[Row] = &[
    Row {
        case: "tasks that ended before a moment",
        before: &[ENDED],
        args: &["delivered", "800", "10", "10", "0"],
        answer: "[1, 0, 0]",
        after: &[
            "- bodies 1 = 1 500 400 shop -|hello",
            "- delivered 1 @ 600",
            "- entries 1 = 1 0 delivered - r * shop 200 OK",
        ],
    },
    Row {
        case: "there may be more",
        before: &[ENDED],
        args: &["delivered", "900", "1", "10", "0"],
        answer: "[1, 1, 0]",
        after: &[
            "- bodies 1 = 1 500 400 shop -|hello",
            "- delivered 1 @ 600",
            "- entries 1 = 1 0 delivered - r * shop 200 OK",
        ],
    },
    Row {
        case: "no more than the excess",
        before: &[ENDED],
        args: &["delivered", "900", "10", "10", "1"],
        answer: "[1, 1, 0]",
        after: &[
            "- bodies 1 = 1 500 400 shop -|hello",
            "- delivered 1 @ 600",
            "- entries 1 = 1 0 delivered - r * shop 200 OK",
        ],
    },
    Row {
        case: "idempotency keys whose window is over",
        before: &[&[
            "used i = 1 2a 1000 500 1",
            "windows i @ 1000",
            "used j = 2 2a 1001 500 2",
            "windows j @ 1001",
        ]],
        args: &["delivered", "900", "10", "10", "0"],
        answer: "[0, 0, 1]",
        after: &["- used i = 1 2a 1000 500 1", "- windows i @ 1000"],
    },
];

pub(super) const HISTORIES: &[Row] = &[
    Row { case: "nothing", before: &[], args: &[""], answer: "[1000, ]", after: &[] },
    Row {
        case: "ended tasks and a key whose window is over",
        before: &[ENDED, &["windows i @ 1000", "windows j @ 1001"]],
        args: &[""],
        answer: "[1000, [2, 600, 1, 0]]",
        after: &[],
    },
    Row {
        case: "recurring schedules",
        before: &[&["recurring a = 1 0f 900 900 - - - - - -|{}"]],
        args: &[""],
        answer: "[1000, [0, , 0, 1]]",
        after: &[],
    },
];

pub(super) const LEAVE: &[Row] = &[
    Row {
        case: "an empty lane is closed",
        before: &[&["offsets #shards = 1", "used i = 1 2a 1000 500 1", "windows i @ 1000"]],
        args: &[],
        answer: "1",
        after: &["- offsets #shards = 1", "- used i = 1 2a 1000 500 1", "- windows i @ 1000"],
    },
    Row {
        case: "a lane with recurring schedules",
        before: &[&["offsets #shards = 1", "recurring a = 1 0f 900 900 - - - - - -|{}"]],
        args: &[],
        answer: "0",
        after: &[],
    },
    Row {
        case: "a lane with tasks",
        before: &[&["offsets #shards = 1"], ENDED],
        args: &[],
        answer: "0",
        after: &[],
    },
];

pub(super) const CONFIRM: &[Row] =
    &[Row { case: "nothing remains", before: &[], args: &[], answer: "nil", after: &[] }];

pub(super) const STAMP: &[Row] = &[
    Row {
        case: "another number",
        before: &[&["offsets #shards = 1"], ENDED],
        args: &["2"],
        answer: "nil",
        after: &["- offsets #shards = 1", "+ offsets #shards = 2"],
    },
    Row {
        case: "none",
        before: &[&["offsets #shards = 1"], ENDED],
        args: &[""],
        answer: "nil",
        after: &["- offsets #shards = 1"],
    },
    Row { case: "an empty lane", before: &[], args: &["2"], answer: "nil", after: &[] },
];

/// An instance, and what it says. Now is 1000, so a minute ago lies before 0; a moment as far ahead
/// counts the same.
pub(super) const HEARTBEAT: &[Row] = &[
    Row {
        case: "the first",
        before: &[],
        args: &["a", "{\"x\":\"1 2\"}"],
        answer: r#"[1000, {"x":"1 2"}]"#,
        after: &[r#"+ instances a = 1000 {"x":"1 2"}"#],
    },
    Row {
        case: "it replaces the one before, and reads the others",
        before: &[&["instances a = 400 old", "instances b = 900 other"]],
        args: &["a", "new"],
        answer: "[1000, new, 900, other]",
        after: &["- instances a = 400 old", "+ instances a = 1000 new"],
    },
    Row {
        case: "silent ones are left out, and removed after a minute",
        before: &[&["instances a = 11000 silent", "instances b = 61000 gone", "instances c = ?"]],
        args: &["", ""],
        answer: "[]",
        after: &["- instances b = 61000 gone"],
    },
];

/// About how many entries stay, and the new ones.
pub(super) const AUDIT: &[Row] = &[Row {
    case: "all are appended; so few are not trimmed",
    before: &[],
    args: &["1", "{\"n\":1}", "{\"n\":2}"],
    answer: "nil",
    after: &["+ audit entry = {\"n\":1}", "+ audit entry = {\"n\":2}"],
}];
