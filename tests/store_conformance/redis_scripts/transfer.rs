//! The scripts that move tasks to another store, and from one.

use super::table::Row;

const WAITING: &[&str] =
    &["bodies 1 = 1 1500 400 shop -|hello", "schedule:shop 1 @ 1500", "destinations shop @ 1500"];
const OPEN: &[&str] = &["offsets #shards = 1"];

pub(super) const LEND: &[Row] = &[
    Row {
        case: "a task that waits",
        before: &[WAITING],
        args: &["r", "2000", "1"],
        answer: "[1]",
        after: &[
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ entries 1 = 0 0 - m1500 r * shop ",
            "+ leased 1 @ 3000",
        ],
    },
    Row {
        case: "a task that another mover holds",
        before: &[&[
            "bodies 1 = 1 1500 400 shop -|hello",
            "entries 1 = 0 0 - m1500 q * shop ",
            "leased 1 @ 1200",
        ]],
        args: &["r", "2000", "1"],
        answer: "[1]",
        after: &[
            "- entries 1 = 0 0 - m1500 q * shop ",
            "- leased 1 @ 1200",
            "+ entries 1 = 0 0 - m1500 r q shop ",
            "+ leased 1 @ 3000",
        ],
    },
    Row {
        case: "a task that a worker holds",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 - w q * shop ",
            "leased 1 @ 3000",
        ]],
        args: &["r", "2000", "1"],
        answer: "[0]",
        after: &[],
    },
    Row {
        case: "a worker's lease that has expired",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 - w q * shop ",
            "leased 1 @ 900",
        ]],
        args: &["r", "2000", "1"],
        answer: "[1]",
        after: &[
            "- entries 1 = 1 0 - w q * shop ",
            "- leased 1 @ 900",
            "+ entries 1 = 1 1 - m900 r q shop lease ran out",
            "+ leased 1 @ 3000",
        ],
    },
    Row { case: "no task", before: &[], args: &["r", "2000", "1"], answer: "[0]", after: &[] },
];

/// Id, created, due, destination, options, content, state, moment, attempts, outcome, key, when the
/// key was set, expires after, whether another topic has the id.
pub(super) const ADOPT: &[Row] = &[
    Row {
        case: "a task that waits",
        before: &[OPEN],
        args: &[
            "1",
            "1",
            "400",
            "1500",
            "shop",
            "-",
            "hello",
            "scheduled",
            "1800",
            "2",
            "503",
            "",
            "",
            "300",
            "",
        ],
        answer: "[1000, new]",
        after: &[
            "+ bodies 1 = 1 1500 400 shop -|hello",
            "+ destinations shop @ 1800",
            "+ entries 1 = 2 0 - - * * shop 503",
            "+ expiries 1 @ 1801",
            "+ schedule:shop 1 @ 1800",
        ],
    },
    Row {
        case: "a delivered task",
        before: &[OPEN],
        args: &[
            "1",
            "1",
            "400",
            "500",
            "shop",
            "-",
            "hello",
            "delivered",
            "900",
            "1",
            "200 OK",
            "",
            "",
            "",
            "",
        ],
        answer: "[1000, new]",
        after: &[
            "+ bodies 1 = 1 500 400 shop -|hello",
            "+ delivered 1 @ 900",
            "+ entries 1 = 1 0 delivered - * * shop 200 OK",
        ],
    },
    Row {
        case: "a task that was adopted before",
        before: &[OPEN, WAITING],
        args: &[
            "1",
            "1",
            "400",
            "1500",
            "shop",
            "-",
            "hello",
            "scheduled",
            "1500",
            "0",
            "",
            "",
            "",
            "",
            "",
        ],
        answer: "[1000, known]",
        after: &[],
    },
    Row {
        case: "the id of another task",
        before: &[OPEN, WAITING],
        args: &[
            "1",
            "1",
            "400",
            "1500",
            "shop",
            "-",
            "other",
            "scheduled",
            "1500",
            "0",
            "",
            "",
            "",
            "",
            "",
        ],
        answer: "[1000, taken]",
        after: &[],
    },
    Row {
        case: "a mover of this store holds it",
        before: &[
            OPEN,
            &[
                "bodies 1 = 1 1500 400 shop -|hello",
                "entries 1 = 0 0 - m1500 q * shop ",
                "leased 1 @ 3000",
            ],
        ],
        args: &[
            "1",
            "1",
            "400",
            "1500",
            "shop",
            "-",
            "hello",
            "scheduled",
            "1500",
            "0",
            "",
            "",
            "",
            "",
            "",
        ],
        answer: "[1000, own]",
        after: &[],
    },
    Row {
        case: "a waiting task was cancelled elsewhere",
        before: &[OPEN, WAITING],
        args: &[
            "1",
            "1",
            "400",
            "1500",
            "shop",
            "-",
            "hello",
            "cancelled",
            "900",
            "0",
            "",
            "",
            "",
            "",
            "",
        ],
        answer: "[1000, ended]",
        after: &[
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 0 0 cancelled - * * shop ",
        ],
    },
    Row {
        case: "a task of its key that was set before is cancelled",
        before: &[
            OPEN,
            &[
                r#"bodies 7 = 1 1500 300 shop {"key":"k"}|old"#,
                "schedule:shop 7 @ 1500",
                "destinations shop @ 1500",
                "owners k = 7 7 300",
            ],
        ],
        args: WITH_A_KEY,
        answer: "[1000, new]",
        after: &[
            "- owners k = 7 7 300",
            "- schedule:shop 7 @ 1500",
            r#"+ bodies 1 = 1 1500 400 shop {"key":"k"}|hello"#,
            "+ cancelled 7 @ 1000",
            "+ entries 7 = 0 0 cancelled - * * shop ",
            "+ owners k = 1 1 400",
            "+ schedule:shop 1 @ 1500",
        ],
    },
    Row {
        case: "a task of its key that was set later stays alone",
        before: &[
            OPEN,
            &[
                r#"bodies 7 = 1 1500 300 shop {"key":"k"}|new"#,
                "schedule:shop 7 @ 1500",
                "destinations shop @ 1500",
                "owners k = 7 7 500",
            ],
        ],
        args: WITH_A_KEY,
        answer: "[1000, superseded]",
        after: &[],
    },
];

/// Its key was set at 400.
#[rustfmt::skip]
const WITH_A_KEY: &[&str] = &[
    "1", "1", "400", "1500", "shop", r#"{"key":"k"}"#, "hello", "scheduled", "1500", "0", "", "k",
    "400", "", "",
];

pub(super) const PRESENT: &[Row] =
    &[Row { case: "one exists", before: &[WAITING], args: &["1", "2"], answer: "[1]", after: &[] }];

pub(super) const IMPORTED: &[Row] = &[
    Row {
        case: "a store that was not known",
        before: &[&["store id = ff"]],
        args: &["ab", "5", "9"],
        answer: "[id, ff]",
        after: &["+ store from:ab = 5 9"],
    },
    Row {
        case: "a larger span",
        before: &[&["store from:ab = 5 9"]],
        args: &["ab", "3", "7"],
        answer: "[from:ab, 5 9]",
        after: &["- store from:ab = 5 9", "+ store from:ab = 3 9"],
    },
];

pub(super) const STORE_ID: &[Row] = &[
    Row {
        case: "a new store",
        before: &[],
        args: &["ab", "0", "1"],
        answer: "[ab, 1]",
        after: &["+ store format = 1", "+ store id = ab", "+ store since = 0"],
    },
    Row {
        case: "a store that has an id",
        before: &[&["store id = cd", "store since = 7", "store format = 1"]],
        args: &["ab", "0", "2"],
        answer: "[cd, 1]",
        after: &[],
    },
];
