//! The scripts of recurring schedules. It is ms 1000.

use super::table::Row;

const OPEN: &[&str] = &["offsets #shards = 1"];
/// A schedule that was set, and not planned yet.
const FRESH: &[&str] = &["recurring a = 1 0f 900 900 - - - - - -|{}", "plans a @ 900"];
/// A schedule whose first occurrence waits for ms 1500.
const PLANNED: &[&str] = &["recurring a = 1 0f 900 900 c1 900,- - - - 7@1500|{}", "plans a @ 1500"];
const WAITING: &[&str] = &[
    r#"bodies 7 = 1 1500 900 shop {"schedule":{"name":"a","after":0,"missed":0}}|hello"#,
    "schedule:shop 7 @ 1500",
    "destinations shop @ 1500",
];
/// The same occurrence while a worker has it.
const LEASED: &[&str] = &[
    r#"bodies 7 = 1 1500 900 shop {"schedule":{"name":"a","after":0,"missed":0}}|hello"#,
    "entries 7 = 1 0 - w r * shop ",
    "leased 7 @ 2000",
];
const PLAN_NEXT: &[&str] = &[
    "1",
    "a",
    "0f",
    "900",
    "c1",
    "3",
    "980",
    "1100",
    "8",
    "2500",
    "shop",
    r#"{"schedule":{"name":"a","after":0,"missed":0}}"#,
    "hi",
    "",
    "2400",
    "c2",
    "950",
    "2500",
];

pub(super) const SET: &[Row] = &[
    Row {
        case: "a new schedule",
        before: &[OPEN],
        args: &["1", "a", "{}", "0f", "9"],
        answer: "[1000, created, 1 0f 1000 1000 - - - - - -|{}, 1000]",
        after: &["+ plans a @ 1000", "+ recurring a = 1 0f 1000 1000 - - - - - -|{}"],
    },
    Row {
        case: "an equal definition",
        before: &[OPEN, FRESH],
        args: &["1", "a", "{}", "ff", "9"],
        answer: "[1000, unchanged, 1 0f 900 900 - - - - - -|{}, 900]",
        after: &[],
    },
    Row {
        case: "another definition withdraws the occurrence that waits",
        before: &[OPEN, PLANNED, WAITING],
        args: &["1", "a", "[]", "ff", "9"],
        answer: "[1000, changed, 1 ff 1000 1000 - - - - - -|[], 1000]",
        after: &[
            "- destinations shop @ 1500",
            "- plans a @ 1500",
            "- recurring a = 1 0f 900 900 c1 900,- - - - 7@1500|{}",
            "- schedule:shop 7 @ 1500",
            "+ cancelled 7 @ 1000",
            "+ entries 7 = 0 0 cancelled - * * shop its schedule was changed, paused or deleted",
            "+ plans a @ 1000",
            "+ recurring a = 1 ff 1000 1000 - - - - - -|[]",
        ],
    },
    Row {
        case: "too many schedules",
        before: &[OPEN, FRESH],
        args: &["1", "b", "{}", "ff", "1"],
        answer: "[1000, too many]",
        after: &[],
    },
    Row {
        case: "a schedule of another store, which an operator had paused",
        before: &[OPEN],
        args: &["1", "a", "{}", "0f", "9", "00c0ffee00c0ffee", "5", "6", "c9", "1"],
        answer: "[1000, created, 1 0f 5 6 c9 - o1000 00c0ffee00c0ffee - -|{}, ]",
        after: &["+ recurring a = 1 0f 5 6 c9 - o1000 00c0ffee00c0ffee - -|{}"],
    },
    Row {
        case: "it was moved here before",
        before: &[OPEN, &["recurring a = 1 0f 5 6 c9 - - 00c0ffee00c0ffee - -|{}", "plans a @ 9"]],
        args: &["1", "a", "[]", "ff", "9", "00c0ffee00c0ffee", "5", "6", "c9", "0"],
        answer: "[1000, unchanged, 1 0f 5 6 c9 - - 00c0ffee00c0ffee - -|{}, 9]",
        after: &[],
    },
    Row {
        case: "it was set at its origin since",
        before: &[OPEN, &["recurring a = 1 0f 5 6 c9 - - 00c0ffee00c0ffee - -|{}", "plans a @ 9"]],
        args: &["1", "a", "[]", "ff", "9", "00c0ffee00c0ffee", "7", "8", "c2", "0"],
        answer: "[1000, changed, 1 ff 7 8 c2 - - 00c0ffee00c0ffee - -|[], 1000]",
        after: &[
            "- plans a @ 9",
            "- recurring a = 1 0f 5 6 c9 - - 00c0ffee00c0ffee - -|{}",
            "+ plans a @ 1000",
            "+ recurring a = 1 ff 7 8 c2 - - 00c0ffee00c0ffee - -|[]",
        ],
    },
    Row {
        case: "another schedule has its name",
        before: &[OPEN, FRESH],
        args: &["1", "a", "{}", "ff", "9", "00c0ffee00c0ffee", "5", "6", "c9", "0"],
        answer: "[1000, taken]",
        after: &[],
    },
    Row {
        case: "this very store is the source",
        before: &[OPEN, &["recurring a = 1 0f 900 900 - - m950 - - -|{}"]],
        args: &["1", "a", "{}", "ff", "9", "-", "900", "900", "-", "0"],
        answer: "[1000, own]",
        after: &[],
    },
];

pub(super) const PAUSE: &[Row] = &[
    Row { case: "no schedule", before: &[], args: &["a", "o"], answer: "[1000, , ]", after: &[] },
    Row {
        case: "a pause",
        before: &[FRESH],
        args: &["a", "o"],
        answer: "[1000, 1 0f 900 900 - - o1000 - - -|{}, ]",
        after: &[
            "- plans a @ 900",
            "- recurring a = 1 0f 900 900 - - - - - -|{}",
            "+ recurring a = 1 0f 900 900 - - o1000 - - -|{}",
        ],
    },
    Row {
        case: "the end of an operator's pause",
        before: &[&["recurring a = 1 0f 900 900 c1 - o950 - - 7@1500|{}"]],
        args: &["a", ""],
        answer: "[1000, 1 0f 900 1500 c1 - - - - 7@1500|{}, 1000]",
        after: &[
            "- recurring a = 1 0f 900 900 c1 - o950 - - 7@1500|{}",
            "+ plans a @ 1000",
            "+ recurring a = 1 0f 900 1500 c1 - - - - 7@1500|{}",
        ],
    },
    Row {
        case: "the end of a mover's pause",
        before: &[&["recurring a = 1 0f 900 900 c1 - m950 - - -|{}"]],
        args: &["a", ""],
        answer: "[1000, 1 0f 900 900 c1 - - - - -|{}, 1000]",
        after: &[
            "- recurring a = 1 0f 900 900 c1 - m950 - - -|{}",
            "+ plans a @ 1000",
            "+ recurring a = 1 0f 900 900 c1 - - - - -|{}",
        ],
    },
];

pub(super) const DELETE: &[Row] = &[
    Row { case: "no schedule", before: &[], args: &["a"], answer: "0", after: &[] },
    Row {
        case: "an occurrence that was handed out stays",
        before: &[PLANNED, LEASED],
        args: &["a"],
        answer: "1",
        after: &["- plans a @ 1500", "- recurring a = 1 0f 900 900 c1 900,- - - - 7@1500|{}"],
    },
    Row {
        case: "one that cannot be read",
        before: &[&["recurring a = what"]],
        args: &["a"],
        answer: "1",
        after: &["- recurring a = what"],
    },
    Row {
        case: "one that another store has",
        before: &[&["recurring a = 1 0f 900 900 - - m950 - - -|{}"]],
        args: &["a", "0f"],
        answer: "1",
        after: &["- recurring a = 1 0f 900 900 - - m950 - - -|{}"],
    },
    Row {
        case: "another store has an older revision",
        before: &[&["recurring a = 1 0f 900 900 - - m950 - - -|{}"]],
        args: &["a", "0e"],
        answer: "2",
        after: &[],
    },
    Row {
        case: "another store has it, and it was resumed",
        before: &[FRESH],
        args: &["a", "0f"],
        answer: "2",
        after: &[],
    },
];

pub(super) const READ: &[Row] = &[Row {
    case: "schedules by name",
    before: &[FRESH],
    args: &["b", "a"],
    answer: "[1000, , , 1 0f 900 900 - - - - - -|{}, 900]",
    after: &[],
}];

pub(super) const DUE: &[Row] = &[
    Row {
        case: "those whose moment has passed",
        before: &[&["plans a @ 1000", "plans b @ 900", "plans c @ 1001"]],
        args: &["0", "9"],
        answer: "[1000, [b, a]]",
        after: &[],
    },
    Row {
        case: "those behind the first",
        before: &[&["plans a @ 1000", "plans b @ 900", "plans c @ 999"]],
        args: &["1", "9"],
        answer: "[1000, [c, a]]",
        after: &[],
    },
];

pub(super) const PLAN: &[Row] = &[
    Row {
        case: "the occurrence before was handed out",
        before: &[OPEN, PLANNED, LEASED],
        args: PLAN_NEXT,
        answer: "[1000, added, 2500]",
        after: &[
            "- plans a @ 1500",
            "- recurring a = 1 0f 900 900 c1 900,- - - - 7@1500|{}",
            r#"+ bodies 8 = 1 2500 1000 shop {"schedule":{"name":"a","after":7,"missed":0}}|hi"#,
            "+ destinations shop @ 2500",
            "+ plans a @ 2500",
            "+ recurring a = 1 0f 900 950 c2 900,c1 - - 7 8@2400,7@1500|{}",
            "+ schedule:shop 8 @ 2500",
        ],
    },
    Row {
        case: "the occurrence before waits",
        before: &[OPEN, PLANNED, WAITING],
        args: PLAN_NEXT,
        answer: "[1000, waits]",
        after: &[
            r#"- bodies 7 = 1 1500 900 shop {"schedule":{"name":"a","after":0,"missed":0}}|hello"#,
            "- plans a @ 1500",
            "- recurring a = 1 0f 900 900 c1 900,- - - - 7@1500|{}",
            r#"+ bodies 7 = 1 1500 900 shop {"schedule":{"name":"a","after":0,"missed":3}}|hello"#,
            "+ plans a @ 1100",
            "+ recurring a = 1 0f 900 980 c1 900,- - - - 7@1500|{}",
        ],
    },
    Row {
        case: "another planner was first",
        before: &[OPEN, &["recurring a = 1 0f 900 900 c2 900,c1 - - - 9@2500|{}"]],
        args: PLAN_NEXT,
        answer: "[1000, stale]",
        after: &[],
    },
    Row {
        case: "a repeat",
        before: &[
            OPEN,
            &[
                "recurring a = 1 0f 900 950 c2 900,c1 - - - 8@2400|{}",
                "bodies 8 = 1 2500 1 shop -|hi",
            ],
        ],
        args: PLAN_NEXT,
        answer: "[1000, added, 2500]",
        after: &[],
    },
    Row {
        case: "the id belongs to another task",
        before: &[OPEN, PLANNED, &["bodies 8 = 1 5 5 shop -|other"]],
        args: PLAN_NEXT,
        answer: "[1000, taken]",
        after: &[],
    },
    Row {
        case: "after the last moment",
        before: &[OPEN, PLANNED],
        args: &["1", "a", "0f", "900", "c1", "", "", "1100", ""],
        answer: "[1000, ended]",
        after: &["- plans a @ 1500", "+ plans a @ 9007199254740991"],
    },
    Row {
        case: "no schedule",
        before: &[OPEN],
        args: PLAN_NEXT,
        answer: "[1000, stale]",
        after: &[],
    },
];

pub(super) const SCHEDULED: &[Row] = &[
    Row {
        case: "the first schedule of a topic",
        before: &[],
        args: &["orders"],
        answer: "1",
        after: &["+ revision = …", "+ scheduled orders = 1"],
    },
    Row {
        case: "a further one",
        before: &[&["scheduled orders = 1"]],
        args: &["orders"],
        answer: "0",
        after: &[],
    },
];
