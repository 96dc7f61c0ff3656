//! The scripts that read.

use super::table::Row;

const LANE: &[&str] = &[
    r#"bodies 1 = 1 1500 400 shop {"key":"k"}|hello"#,
    "schedule:shop 1 @ 1500",
    "destinations shop @ 1500",
    "owners k = 1 1 400",
    "bodies 2 = 1 500 400 shop -|second",
    "entries 2 = 1 0 - w r * shop ",
    "leased 2 @ 3000",
    "bodies 3 = 1 500 400 @pull -|third",
    "entries 3 = 1 0 dead - r * @pull 404",
    "dead 3 @ 900",
    "bodies 4 = 1 1700 400 @pull -|fourth",
    "schedule:@pull 4 @ 1700",
    "bodies 5 = 1 1500 400 shop -|fifth",
    "schedule:shop 5 @ 1500",
];

pub(super) const GET: &[Row] = &[
    Row {
        case: "a task that waits, by its key",
        before: &[LANE],
        args: &["1"],
        answer: r#"[1000, 1 1500 400 shop {"key":"k"}|hello, 400, , , 1500, ]"#,
        after: &[],
    },
    Row {
        case: "a leased task",
        before: &[LANE],
        args: &["2"],
        answer: "[1000, 1 500 400 shop -|second, , 1 0 - w r * shop , 3000, , ]",
        after: &[],
    },
    Row {
        case: "a dead task",
        before: &[LANE],
        args: &["3"],
        answer: "[1000, 1 500 400 @pull -|third, , 1 0 dead - r * @pull 404, , , 900]",
        after: &[],
    },
    Row {
        case: "its key names another task",
        before: &[LANE, &["owners k = 9 9 500"]],
        args: &["1"],
        answer: r#"[1000, 1 1500 400 shop {"key":"k"}|hello, , , , 1500, ]"#,
        after: &[],
    },
    Row { case: "no task", before: &[LANE], args: &["9"], answer: "[]", after: &[] },
];

/// What it is, and its name.
pub(super) const FIND: &[Row] = &[
    Row { case: "by id", before: &[LANE], args: &["id 3"], answer: "[1000, 3]", after: &[] },
    Row { case: "no such id", before: &[LANE], args: &["id 9"], answer: "[1000, ]", after: &[] },
    Row { case: "by key", before: &[LANE], args: &["key k"], answer: "[1000, 1]", after: &[] },
    Row { case: "no such key", before: &[LANE], args: &["key k "], answer: "[1000, ]", after: &[] },
    Row {
        case: "by idempotency key",
        before: &[LANE, &["used a b = 5 00ff 1001 1500 5"]],
        args: &["idempotency a b"],
        answer: "[1000, 5]",
        after: &[],
    },
    Row {
        case: "its window has ended",
        before: &[LANE, &["used a b = 5 00ff 1000 1500 5"]],
        args: &["idempotency a b"],
        answer: "[1000, ]",
        after: &[],
    },
];

pub(super) const SUMMARIES: &[Row] = &[Row {
    case: "without contents",
    before: &[LANE],
    args: &["1", "2", "9", "3"],
    answer: concat!(
        r#"[1000, [1 1500 400 shop {"key":"k"}|, , , 1500, ], "#,
        "[1 500 400 shop -|, 1 0 - w r * shop , 3000, , ], , ",
        "[1 500 400 @pull -|, 1 0 dead - r * @pull 404, , , 900]]"
    ),
    after: &[],
}];

/// State, from, to, the moment and id to continue after, the limit.
pub(super) const LIST: &[Row] = &[
    Row {
        case: "waiting tasks, by their schedules",
        before: &[LANE],
        args: &["scheduled", "0", "9000", "", "", "10"],
        answer: "[4, 1700, 1, 1500, 5, 1500]",
        after: &[],
    },
    Row {
        case: "the next page",
        before: &[LANE],
        args: &["scheduled", "0", "9000", "1500", "1", "10"],
        answer: "[4, 1700, 5, 1500]",
        after: &[],
    },
    Row {
        case: "within a span of time",
        before: &[LANE],
        args: &["scheduled", "1600", "1650", "", "", "10"],
        answer: "[]",
        after: &[],
    },
    Row {
        case: "the latest two of each schedule",
        before: &[LANE],
        args: &["scheduled", "0", "9000", "", "", "2", "back"],
        answer: "[4, 1700, 1, 1500, 5, 1500]",
        after: &[],
    },
    Row {
        case: "the page before",
        before: &[LANE],
        args: &["scheduled", "0", "9000", "1500", "5", "1", "back"],
        answer: "[1, 1500]",
        after: &[],
    },
    Row {
        case: "the latest within a span of time",
        before: &[LANE],
        args: &["scheduled", "1501", "1800", "9000", "9", "5", "back"],
        answer: "[4, 1700]",
        after: &[],
    },
    Row {
        case: "leased",
        before: &[LANE],
        args: &["leased", "0", "9000", "", "", "10"],
        answer: "[2, 3000]",
        after: &[],
    },
    Row {
        case: "dead",
        before: &[LANE],
        args: &["dead", "0", "9000", "", "", "10"],
        answer: "[3, 900]",
        after: &[],
    },
];

pub(super) const STATS: &[Row] = &[
    Row {
        case: "a lane",
        before: &[LANE],
        args: &[],
        answer: "[3, 1, 0, 1, 0, 0, 1500]",
        after: &[],
    },
    Row {
        case: "an empty lane",
        before: &[],
        args: &[],
        answer: "[0, 0, 0, 0, 0, 0, ]",
        after: &[],
    },
];

/// From, step, steps, destinations.
pub(super) const FORECAST: &[Row] = &[
    Row {
        case: "by steps of half a second",
        before: &[LANE],
        args: &["0", "500", "2", "shop", "@pull"],
        answer: "[1000, [0, 2, 1], [shop]]",
        after: &[],
    },
    Row {
        case: "from a moment on",
        before: &[LANE],
        args: &["1500", "100", "1", "shop"],
        answer: "[1500, [2, 0], [shop]]",
        after: &[],
    },
];

/// Spans of time.
pub(super) const SAMPLE: &[Row] = &[
    Row { case: "nothing", before: &[], args: &["0"], answer: "[1000, ]", after: &[] },
    Row {
        case: "by state, and the tasks that are due within half a second and a second",
        before: &[LANE],
        args: &["-500,500,1000"],
        answer: "[1000, [3, 1, 0, 1, 0, 0, [@pull, 1700, 1700, 1, 0, 0, 1], \
                 [shop, 1500, 1500, 2, 0, 2, 2]]]",
        after: &[],
    },
];
