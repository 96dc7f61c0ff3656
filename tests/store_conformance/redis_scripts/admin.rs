//! The scripts of the admin verbs: cancel, reschedule, replay, discard, clear.

use super::table::Row;

const WAITING: &[&str] =
    &["bodies 1 = 1 1500 400 shop -|hello", "schedule:shop 1 @ 1500", "destinations shop @ 1500"];
const HELD: &[&str] =
    &["bodies 1 = 1 500 400 shop -|hello", "entries 1 = 1 0 - w r * shop ", "leased 1 @ 3000"];
const CANCEL_OVERDUE: &[&str] =
    &["bodies 1 = 1 500 400 shop -|hello", "entries 1 = 1 0 ! w r * shop ", "leased 1 @ 900"];
const DEAD: &[&str] =
    &["bodies 1 = 1 500 400 shop -|hello", "entries 1 = 3 0 dead - r q shop 404", "dead 1 @ 900"];
const DELIVERED: &[&str] = &[
    "bodies 1 = 1 500 400 shop -|hello",
    "entries 1 = 1 0 delivered - r * shop 200 OK",
    "delivered 1 @ 900",
];

pub(super) const CANCEL: &[Row] = &[
    Row {
        case: "a task that waits",
        before: &[WAITING],
        args: &["1"],
        answer: "done",
        after: &[
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 0 0 cancelled - * * shop ",
        ],
    },
    Row {
        case: "a task that waits and would expire",
        before: &[WAITING, &["expiries 1 @ 4000"]],
        args: &["1"],
        answer: "done",
        after: &[
            "- destinations shop @ 1500",
            "- expiries 1 @ 4000",
            "- schedule:shop 1 @ 1500",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 0 0 cancelled - * * shop ",
        ],
    },
    Row {
        case: "a leased task",
        before: &[HELD],
        args: &["1"],
        answer: "pending",
        after: &["- entries 1 = 1 0 - w r * shop ", "+ entries 1 = 1 0 ! w r * shop "],
    },
    Row {
        case: "a lease that has run out, again",
        before: &[CANCEL_OVERDUE],
        args: &["1"],
        answer: "done",
        after: &[
            "- entries 1 = 1 0 ! w r * shop ",
            "- leased 1 @ 900",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 1 1 cancelled - r * shop lease ran out",
        ],
    },
    Row {
        case: "a dead task",
        before: &[DEAD],
        args: &["1"],
        answer: "done",
        after: &[
            "- dead 1 @ 900",
            "- entries 1 = 3 0 dead - r q shop 404",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 3 0 cancelled - * * shop 404",
        ],
    },
    Row {
        case: "a delivered task",
        before: &[DELIVERED],
        args: &["1"],
        answer: "delivered",
        after: &[],
    },
    Row { case: "no task", before: &[], args: &["1"], answer: "unknown", after: &[] },
];

pub(super) const CANCEL_NAMED: &[Row] = &[
    Row {
        case: "the newest task of its key",
        before: &[HELD, &["owners k = 1 1 400"]],
        args: &["1", "key", "k"],
        answer: "pending",
        after: &["- entries 1 = 1 0 - w r * shop ", "+ entries 1 = 1 0 ! w r * shop "],
    },
    Row {
        case: "a task whose key has passed on",
        before: &[HELD, &["owners k = 2 2 600"]],
        args: &["1", "key", "k"],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "a key that no task has",
        before: &[HELD],
        args: &["1", "key", "k"],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "an idempotency key",
        before: &[WAITING, &["used i = 1 ab 1001 1500 1"]],
        args: &["1", "idempotency", "i"],
        answer: "done",
        after: &[
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 0 0 cancelled - * * shop ",
        ],
    },
    Row {
        case: "an idempotency key whose window has ended",
        before: &[WAITING, &["used i = 1 ab 1000 1500 1"]],
        args: &["1", "idempotency", "i"],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "an idempotency key whose task was removed",
        before: &[&["used i = 1 ab 1001 1500 1"]],
        args: &["1", "idempotency", "i"],
        answer: "unknown",
        after: &[],
    },
];

pub(super) const CANCEL_SELECTED: &[Row] = &[
    Row {
        case: "a task that waits as it did",
        before: &[WAITING],
        args: &["1", "scheduled", "1500", "shop", ""],
        answer: "done",
        after: &[
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 0 0 cancelled - * * shop ",
        ],
    },
    Row {
        case: "a task with another due moment",
        before: &[WAITING],
        args: &["1", "scheduled", "1499", "shop", ""],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "a task with another destination",
        before: &[WAITING],
        args: &["1", "scheduled", "1500", "bank", ""],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "a task that was tried since",
        before: &[WAITING, &["entries 1 = 1 0 - - * r shop 503"]],
        args: &["1", "scheduled", "1500", "shop", ""],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "a task that was leased since",
        before: &[HELD],
        args: &["1", "scheduled", "500", "shop", ""],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "a dead task",
        before: &[DEAD],
        args: &["1", "dead", "500", "shop", "404"],
        answer: "done",
        after: &[
            "- dead 1 @ 900",
            "- entries 1 = 3 0 dead - r q shop 404",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 3 0 cancelled - * * shop 404",
        ],
    },
    Row {
        case: "a lease that has run out",
        before: &[CANCEL_OVERDUE],
        args: &["1", "scheduled", "900", "shop", ""],
        answer: "done",
        after: &[
            "- entries 1 = 1 0 ! w r * shop ",
            "- leased 1 @ 900",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 1 1 cancelled - r * shop lease ran out",
        ],
    },
    Row {
        case: "an entry that cannot be read",
        before: &[WAITING, &["entries 1 = ?"]],
        args: &["1", "scheduled", "1500", "shop", ""],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "no task",
        before: &[],
        args: &["1", "scheduled", "1500", "shop", ""],
        answer: "nil",
        after: &[],
    },
];

pub(super) const RESCHEDULE_SELECTED: &[Row] = &[
    Row {
        case: "a task that waits as it did",
        before: &[WAITING],
        args: &["1", "+900", "scheduled", "1500", "shop", ""],
        answer: "[done, 1900]",
        after: &[
            "- bodies 1 = 1 1500 400 shop -|hello",
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ bodies 1 = 1 1900 400 shop -|hello",
            "+ destinations shop @ 1900",
            "+ schedule:shop 1 @ 1900",
        ],
    },
    Row {
        case: "a task with another due moment",
        before: &[WAITING],
        args: &["1", "+900", "scheduled", "1501", "shop", ""],
        answer: "nil",
        after: &[],
    },
];

pub(super) const RESCHEDULE_NAMED: &[Row] = &[
    Row {
        case: "another moment",
        before: &[WAITING, &["owners k = 1 1 400"]],
        args: &["1", "+900", "key", "k"],
        answer: "[done, 1900]",
        after: &[
            "- bodies 1 = 1 1500 400 shop -|hello",
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ bodies 1 = 1 1900 400 shop -|hello",
            "+ destinations shop @ 1900",
            "+ schedule:shop 1 @ 1900",
        ],
    },
    Row {
        case: "other content",
        before: &[WAITING, &["used i = 1 ab 1001 1500 1"]],
        args: &["1", "1500", "shop", "bye", "idempotency", "i"],
        answer: "[done, 1500]",
        after: &["- bodies 1 = 1 1500 400 shop -|hello", "+ bodies 1 = 1 1500 400 shop -|bye"],
    },
    Row {
        case: "content for the other mode",
        before: &[WAITING, &["owners k = 1 1 400"]],
        args: &["1", "1500", "@pull", "bye", "same", "key", "k"],
        answer: "[other mode]",
        after: &[],
    },
    Row {
        case: "a task whose key has passed on",
        before: &[WAITING, &["owners k = 2 2 600"]],
        args: &["1", "+900", "shop", "bye", "key", "k"],
        answer: "nil",
        after: &[],
    },
];

pub(super) const RESCHEDULE: &[Row] = &[
    Row {
        case: "another moment",
        before: &[WAITING],
        args: &["1", "+900"],
        answer: "[done, 1900]",
        after: &[
            "- bodies 1 = 1 1500 400 shop -|hello",
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ bodies 1 = 1 1900 400 shop -|hello",
            "+ destinations shop @ 1900",
            "+ schedule:shop 1 @ 1900",
        ],
    },
    Row {
        case: "a moment in the past",
        before: &[WAITING],
        args: &["1", "7"],
        answer: "[done, 1000]",
        after: &[
            "- bodies 1 = 1 1500 400 shop -|hello",
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ bodies 1 = 1 1000 400 shop -|hello",
            "+ destinations shop @ 1000",
            "+ schedule:shop 1 @ 1000",
        ],
    },
    Row {
        case: "other content for another destination",
        before: &[WAITING, &["entries 1 = 1 0 - - * r shop 503"]],
        args: &["1", "2000", "mail", "bye"],
        answer: "[done, 2000]",
        after: &[
            "- bodies 1 = 1 1500 400 shop -|hello",
            "- destinations shop @ 1500",
            "- entries 1 = 1 0 - - * r shop 503",
            "- schedule:shop 1 @ 1500",
            "+ bodies 1 = 1 2000 400 mail -|bye",
            "+ destinations mail @ 2000",
            "+ schedule:mail 1 @ 2000",
        ],
    },
    Row {
        case: "other content for consumers that pull, of a task that is called",
        before: &[WAITING],
        args: &["1", "2000", "@pull", "bye", "same"],
        answer: "[other mode]",
        after: &[],
    },
    Row {
        case: "its expiry goes with it",
        before: &[&[
            r#"bodies 1 = 1 1500 400 shop {"expires_after":"200ms"}|hello"#,
            "schedule:shop 1 @ 1500",
            "destinations shop @ 1500",
            "expiries 1 @ 1701",
        ]],
        args: &["1", "3000"],
        answer: "[done, 3000]",
        after: &[
            r#"- bodies 1 = 1 1500 400 shop {"expires_after":"200ms"}|hello"#,
            "- destinations shop @ 1500",
            "- expiries 1 @ 1701",
            "- schedule:shop 1 @ 1500",
            r#"+ bodies 1 = 1 3000 400 shop {"expires_after":"200ms"}|hello"#,
            "+ destinations shop @ 3000",
            "+ expiries 1 @ 3201",
            "+ schedule:shop 1 @ 3000",
        ],
    },
    Row {
        case: "a leased task",
        before: &[HELD],
        args: &["1", "+900"],
        answer: "[leased]",
        after: &[],
    },
    Row {
        case: "a cancel is fulfilled",
        before: &[CANCEL_OVERDUE],
        args: &["1", "+900"],
        answer: "[cancelled]",
        after: &[
            "- entries 1 = 1 0 ! w r * shop ",
            "- leased 1 @ 900",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 1 1 cancelled - r * shop lease ran out",
        ],
    },
    Row {
        case: "a delivered task",
        before: &[DELIVERED],
        args: &["1", "+900"],
        answer: "[delivered]",
        after: &[],
    },
    Row { case: "no task", before: &[], args: &["1", "+900"], answer: "[unknown]", after: &[] },
];

pub(super) const REPLAY: &[Row] = &[
    Row {
        case: "dead tasks, one after another",
        before: &[
            DEAD,
            &[
                "bodies 2 = 1 600 400 @pull -|second",
                "entries 2 = 3 0 dead - r q @pull 404",
                "dead 2 @ 900",
            ],
        ],
        args: &["0", "50", "=404", "1", "2"],
        answer: "[2, 1000]",
        after: &[
            "- bodies 1 = 1 500 400 shop -|hello",
            "- bodies 2 = 1 600 400 @pull -|second",
            "- dead 1 @ 900",
            "- dead 2 @ 900",
            "- entries 1 = 3 0 dead - r q shop 404",
            "- entries 2 = 3 0 dead - r q @pull 404",
            "+ bodies 1 = 1 1000 400 shop -|hello",
            "+ bodies 2 = 1 1050 400 @pull -|second",
            "+ destinations shop @ 1000",
            "+ schedule:@pull 2 @ 1050",
            "+ schedule:shop 1 @ 1000",
        ],
    },
    Row {
        case: "a task of another outcome stays dead",
        before: &[DEAD],
        args: &["0", "50", "=40", "1"],
        answer: "[0, 1000]",
        after: &[],
    },
    Row {
        case: "a delivered task stays",
        before: &[DELIVERED],
        args: &["0", "0", "", "1"],
        answer: "[0, 1000]",
        after: &[],
    },
    Row {
        case: "without a body it stays dead",
        before: &[&["entries 1 = 3 0 dead - r q shop 404", "dead 1 @ 900"]],
        args: &["0", "0", "", "1"],
        answer: "[0, 1000]",
        after: &[],
    },
];

pub(super) const DISCARD: &[Row] = &[
    Row {
        case: "a dead task, named twice",
        before: &[DEAD],
        args: &["dead", "=404", "1", "1"],
        answer: "[1, 0]",
        after: &[
            "- bodies 1 = 1 500 400 shop -|hello",
            "- dead 1 @ 900",
            "- entries 1 = 3 0 dead - r q shop 404",
        ],
    },
    Row {
        case: "a task of another outcome stays",
        before: &[DEAD],
        args: &["dead", "=40", "1"],
        answer: "[0, 0]",
        after: &[],
    },
    Row {
        case: "a task of another state stays",
        before: &[DELIVERED],
        args: &["dead", "", "1"],
        answer: "[0, 0]",
        after: &[],
    },
    Row {
        case: "its key goes, unless it names another task",
        before: &[&[
            r#"bodies 1 = 1 500 400 shop {"key":"k"}|a"#,
            r#"bodies 2 = 1 500 400 shop {"key":"l"}|b"#,
            "dead 1 @ 900",
            "dead 2 @ 900",
            "owners k = 1 1 400",
            "owners l = 3 3 400",
            "notes 1 = {a}",
        ]],
        args: &["dead", "", "1", "2"],
        answer: "[2, 0]",
        after: &[
            r#"- bodies 1 = 1 500 400 shop {"key":"k"}|a"#,
            r#"- bodies 2 = 1 500 400 shop {"key":"l"}|b"#,
            "- dead 1 @ 900",
            "- dead 2 @ 900",
            "- notes 1 = {a}",
            "- owners k = 1 1 400",
        ],
    },
];

pub(super) const CLEAR: &[Row] = &[
    Row {
        case: "all tasks without a lease",
        before: &[
            WAITING,
            &[
                "bodies 2 = 1 500 400 @pull -|b",
                "schedule:@pull 2 @ 500",
                "bodies 3 = 1 500 400 shop -|c",
                "entries 3 = 1 0 - w r * shop ",
                "leased 3 @ 3000",
                "bodies 4 = 1 500 400 shop -|d",
                "entries 4 = 1 0 - w r * shop ",
                "leased 4 @ 900",
                "bodies 5 = 1 500 400 shop -|e",
                "dead 5 @ 900",
            ],
        ],
        args: &["100", "0"],
        answer: "[4, 1, 0]",
        after: &[
            "- bodies 1 = 1 1500 400 shop -|hello",
            "- bodies 2 = 1 500 400 @pull -|b",
            "- bodies 4 = 1 500 400 shop -|d",
            "- bodies 5 = 1 500 400 shop -|e",
            "- dead 5 @ 900",
            "- destinations shop @ 1500",
            "- entries 3 = 1 0 - w r * shop ",
            "- entries 4 = 1 0 - w r * shop ",
            "- leased 4 @ 900",
            "- schedule:@pull 2 @ 500",
            "- schedule:shop 1 @ 1500",
            "+ entries 3 = 1 0 ! w r * shop ",
        ],
    },
    Row {
        case: "at most the limit",
        before: &[WAITING, &["bodies 2 = 1 1600 400 shop -|b", "schedule:shop 2 @ 1600"]],
        args: &["1", "0"],
        answer: "[1, 0, 0]",
        after: &[
            "- bodies 1 = 1 1500 400 shop -|hello",
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ destinations shop @ 1600",
        ],
    },
    Row {
        case: "a cancel that is pending already, and an entry that cannot be read",
        before: &[
            &["bodies 1 = 1 500 400 shop -|a", "entries 1 = 1 0 ! w r * shop ", "leased 1 @ 3000"],
            &["bodies 2 = 1 500 400 shop -|b", "entries 2 = ?", "leased 2 @ 3000"],
        ],
        args: &["100", "0"],
        answer: "[0, 0, 0]",
        after: &[],
    },
    Row {
        case: "in an empty lane, idempotency keys go too",
        before: &[&["used i = 1 2a 60900 1500 1", "windows i @ 60900", "owners k = 1 1 400"]],
        args: &["100", "0"],
        answer: "[0, 0, 0]",
        after: &["- owners k = 1 1 400", "- used i = 1 2a 60900 1500 1", "- windows i @ 60900"],
    },
];
