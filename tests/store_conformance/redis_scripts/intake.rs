//! The scripts that add tasks.

use super::table::Row;

const OPEN: &[&str] = &["offsets #shards = 1"];
const SHOP_1: &[&str] =
    &["bodies 1 = 1 1500 900 shop -|hello", "schedule:shop 1 @ 1500", "destinations shop @ 1500"];

/// The arguments are block, highest and skip. It is second 1.
pub(super) const IDS: &[Row] = &[
    Row {
        case: "the first draw of a store skips ahead of the second",
        before: &[],
        args: &["3", "0", "500"],
        answer: "1000503",
        after: &["+ id_run = <run> 1000500 0", "+ last_id = 1000503"],
    },
    Row {
        case: "ids go on from the last one",
        before: &[&["last_id = 1000500", "id_run = <run> 7 0"]],
        args: &["3", "0", "500"],
        answer: "1000503",
        after: &["- last_id = 1000500", "+ last_id = 1000503"],
    },
    Row {
        case: "ids keep up with the clock",
        before: &[&["last_id = 999000", "id_run = <run> 7 0"]],
        args: &["3", "0", "500"],
        answer: "1000003",
        after: &["- last_id = 999000", "+ last_id = 1000003"],
    },
    Row {
        case: "an import has raised the counter",
        before: &[&["last_id = 9002501", "id_run = <run> 7 0"]],
        args: &["3", "0", "500"],
        answer: "9002504",
        after: &["- last_id = 9002501", "+ last_id = 9002504"],
    },
    Row {
        case: "an earlier version has written the run",
        before: &[&["last_id = 1000500", "id_run = <run> 7 2500"]],
        args: &["3", "0", "500"],
        answer: "1000503",
        after: &["- last_id = 1000500", "+ last_id = 1000503"],
    },
    Row {
        case: "the first draw after a restart skips ahead",
        before: &[&["last_id = 1000600", "id_run = abc-def 7 0"]],
        args: &["3", "0", "500"],
        answer: "1001103",
        after: &[
            "- id_run = abc-def 7 0",
            "- last_id = 1000600",
            "+ id_run = <run> 1001100 0",
            "+ last_id = 1001103",
        ],
    },
    Row {
        case: "a server that was promoted again skips ahead, although it did not restart",
        before: &[&["last_id = 1000600", "id_run = <run_id>-def 7 0"]],
        args: &["3", "0", "500"],
        answer: "1001103",
        after: &[
            "- id_run = <run_id>-def 7 0",
            "- last_id = 1000600",
            "+ id_run = <run> 1001100 0",
            "+ last_id = 1001103",
        ],
    },
    Row {
        case: "a server that took over without a restart of the run skips ahead",
        before: &[&["last_id = 1000600", "id_run = abc-<replid> 7 0"]],
        args: &["3", "0", "500"],
        answer: "1001103",
        after: &[
            "- id_run = abc-<replid> 7 0",
            "- last_id = 1000600",
            "+ id_run = <run> 1001100 0",
            "+ last_id = 1001103",
        ],
    },
    Row {
        case: "the counter was deleted",
        before: &[&["id_run = <run> 1000400 0"]],
        args: &["3", "0", "500"],
        answer: "1000503",
        after: &["- id_run = <run> 1000400 0", "+ id_run = <run> 1000500 0", "+ last_id = 1000503"],
    },
    Row {
        case: "the counter was reset below the base",
        before: &[&["last_id = 999399", "id_run = <run> 1000400 0"]],
        args: &["3", "0", "500"],
        answer: "1000503",
        after: &[
            "- id_run = <run> 1000400 0",
            "- last_id = 999399",
            "+ id_run = <run> 1000500 0",
            "+ last_id = 1000503",
        ],
    },
    Row {
        case: "the counter is no number",
        before: &[&["last_id = what", "id_run = <run> 7 0"]],
        args: &["3", "0", "500"],
        answer: "1000503",
        after: &[
            "- id_run = <run> 7 0",
            "- last_id = what",
            "+ id_run = <run> 1000500 0",
            "+ last_id = 1000503",
        ],
    },
    Row {
        case: "the counter leaves no room for ids",
        before: &[&["last_id = 99999999999999999999", "id_run = <run> 7 0"]],
        args: &["3", "0", "500"],
        answer: "1000503",
        after: &[
            "- id_run = <run> 7 0",
            "- last_id = 99999999999999999999",
            "+ id_run = <run> 1000500 0",
            "+ last_id = 1000503",
        ],
    },
    Row {
        case: "the run cannot be read",
        before: &[&["last_id = 1000500", "id_run = <run> 7"]],
        args: &["3", "0", "500"],
        answer: "1001003",
        after: &[
            "- id_run = <run> 7",
            "- last_id = 1000500",
            "+ id_run = <run> 1001000 0",
            "+ last_id = 1001003",
        ],
    },
    Row {
        case: "the caller has drawn higher ids, which the counter has lost",
        before: &[&["last_id = 1000500", "id_run = abc-def 7 0"]],
        args: &["3", "1002900", "500"],
        answer: "1003403",
        after: &[
            "- id_run = abc-def 7 0",
            "- last_id = 1000500",
            "+ id_run = <run> 1003400 0",
            "+ last_id = 1003403",
        ],
    },
];

pub(super) const ADD: &[Row] = &[
    Row {
        case: "a closed lane returns a token",
        before: &[],
        args: &["1", "5", "shop", "1", "1", "+500", "shop -|hello"],
        answer: "[1000, [closed, …]]",
        after: &["+ offsets #opening = …"],
    },
    Row {
        case: "the token opens the lane",
        before: &[&["offsets #opening = t"]],
        args: &["1 t", "5", "shop", "1", "1", "+500", "shop -|hello"],
        answer: "[1000, 0]",
        after: &[
            "- offsets #opening = t",
            "+ bodies 1 = 1 1500 1000 shop -|hello",
            "+ destinations shop @ 1500",
            "+ offsets #shards = 1",
            "+ schedule:shop 1 @ 1500",
        ],
    },
    Row {
        case: "a lane of another number of lanes",
        before: &[&["offsets #shards = 2"], SHOP_1],
        args: &["1", "5", "shop", "1", "2", "+500", "shop -|hello"],
        answer: "[1000, [stale, 2]]",
        after: &[],
    },
    Row {
        case: "two tasks, one of them for the past",
        before: &[OPEN],
        args: &["1", "8", "shop", "2", "1", "+500", "shop -|hello", "2", "7", "shop -|late"],
        answer: "[1000, 0]",
        after: &[
            "+ bodies 1 = 1 1500 1000 shop -|hello",
            "+ bodies 2 = 1 1000 1000 shop -|late",
            "+ destinations shop @ 1000",
            "+ schedule:shop 1 @ 1500",
            "+ schedule:shop 2 @ 1000",
        ],
    },
    Row {
        case: "a pulled task has no entry among the destinations",
        before: &[OPEN],
        args: &["1", "5", "@pull", "1", "1", "2000", "@pull -|hello"],
        answer: "[1000, 0]",
        after: &["+ bodies 1 = 1 2000 1000 @pull -|hello", "+ schedule:@pull 1 @ 2000"],
    },
    Row {
        case: "sent again after a claim, a task is not scheduled again",
        before: &[OPEN, &["bodies 1 = 1 1500 900 shop -|hello", "leased 1 @ 3000"]],
        args: &["1", "5", "shop", "1", "1", "+500", "shop -|hello"],
        answer: "[1000, [0, 1500]]",
        after: &[],
    },
    Row {
        case: "the id of another task",
        before: &[OPEN, SHOP_1],
        args: &["1", "5", "shop", "1", "1", "+500", "shop -|other"],
        answer: "[1000, [0, -1]]",
        after: &[],
    },
];

const IDEMPOTENT: &str = r#"{"idempotency":{"key":"i","fingerprint":"2a","window":60000}}"#;
const KEYED: &str = r#"{"key":"k"}"#;

pub(super) const ADD_WITH_OPTIONS: &[Row] = &[
    Row {
        case: "a new task with a key that expires",
        before: &[OPEN],
        args: &[
            "1",
            "2",
            "+500",
            "shop",
            r#"{"key":"k"}"#,
            "hello",
            r#"{"key":"k","expires_after":200}"#,
        ],
        answer: "[1000, 1500]",
        after: &[
            r#"+ bodies 2 = 1 1500 1000 shop {"key":"k"}|hello"#,
            "+ destinations shop @ 1500",
            "+ expiries 2 @ 1701",
            "+ owners k = 2 2 1000",
            "+ schedule:shop 2 @ 1500",
        ],
    },
    Row {
        case: "the same key moves the task that waits",
        before: &[
            OPEN,
            &[
                r#"bodies 1 = 1 1500 900 shop {"key":"k"}|hello"#,
                "schedule:shop 1 @ 1500",
                "destinations shop @ 1500",
                "owners k = 1 1 900",
            ],
        ],
        args: &["1", "2", "+900", "mail", KEYED, "later", KEYED],
        answer: "[1000, [replaced, 1, 1900, ]]",
        after: &[
            r#"- bodies 1 = 1 1500 900 shop {"key":"k"}|hello"#,
            "- destinations shop @ 1500",
            "- owners k = 1 1 900",
            "- schedule:shop 1 @ 1500",
            r#"+ bodies 1 = 1 1900 900 mail {"key":"k"}|later"#,
            "+ destinations mail @ 1900",
            "+ owners k = 1 2 1000",
            "+ schedule:mail 1 @ 1900",
        ],
    },
    Row {
        case: "a task moved from another store keeps its origin",
        before: &[
            OPEN,
            &[
                r#"bodies 1 = 1 1500 900 shop {"origin":"ab","key":"k"}|hello"#,
                "schedule:shop 1 @ 1500",
                "destinations shop @ 1500",
                "owners k = 1 1 900",
            ],
        ],
        args: &["1", "2", "+900", "shop", KEYED, "later", KEYED],
        answer: "[1000, [replaced, 1, 1900, ]]",
        after: &[
            r#"- bodies 1 = 1 1500 900 shop {"origin":"ab","key":"k"}|hello"#,
            "- destinations shop @ 1500",
            "- owners k = 1 1 900",
            "- schedule:shop 1 @ 1500",
            r#"+ bodies 1 = 1 1900 900 shop {"origin":"ab","key":"k"}|later"#,
            "+ destinations shop @ 1900",
            "+ owners k = 1 2 1000",
            "+ schedule:shop 1 @ 1900",
        ],
    },
    Row {
        case: "sent again, a push-back is not done twice",
        before: &[
            OPEN,
            &[
                r#"bodies 1 = 1 1900 900 shop {"key":"k"}|later"#,
                "leased 1 @ 3000",
                "owners k = 1 2 1000",
            ],
        ],
        args: &["1", "2", "+900", "shop", KEYED, "later", KEYED],
        answer: "[1000, [replaced, 1, 1900, ]]",
        after: &[],
    },
    Row {
        case: "a leased task of the key is to be cancelled, and a new one waits",
        before: &[
            OPEN,
            &[
                r#"bodies 1 = 1 1500 900 shop {"key":"k"}|hello"#,
                "entries 1 = 1 0 - w r * shop ",
                "leased 1 @ 3000",
                "owners k = 1 1 900",
            ],
        ],
        args: &["1", "2", "+500", "shop", KEYED, "next", KEYED],
        answer: "[1000, 1500]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- owners k = 1 1 900",
            r#"+ bodies 2 = 1 1500 1000 shop {"key":"k"}|next"#,
            "+ destinations shop @ 1500",
            "+ entries 1 = 1 0 ! w r * shop ",
            "+ owners k = 2 2 1000",
            "+ schedule:shop 2 @ 1500",
        ],
    },
    Row {
        case: "the first add under an idempotency key",
        before: &[OPEN],
        args: &["1", "1", "+500", "shop", "-", "hello", IDEMPOTENT],
        answer: "[1000, 1500]",
        after: &[
            "+ bodies 1 = 1 1500 1000 shop -|hello",
            "+ destinations shop @ 1500",
            "+ schedule:shop 1 @ 1500",
            "+ used i = 1 2a 61000 1500 1",
            "+ windows i @ 61000",
        ],
    },
    Row {
        case: "the second add under an idempotency key stores nothing",
        before: &[OPEN, SHOP_1, &["used i = 1 2a 60900 1500 1", "windows i @ 60900"]],
        args: &["1", "2", "+900", "shop", "-", "hello", IDEMPOTENT],
        answer: "[1000, [duplicate, 1, 1500, scheduled]]",
        after: &[],
    },
    Row {
        case: "another request under the idempotency key",
        before: &[OPEN, SHOP_1, &["used i = 1 99 60900 1500 1", "windows i @ 60900"]],
        args: &["1", "2", "+900", "shop", "-", "hello", IDEMPOTENT],
        answer: "[1000, -3]",
        after: &[],
    },
    Row {
        case: "a window that is over",
        before: &[OPEN, &["used i = 1 99 1000 1500 1", "windows i @ 1000"]],
        args: &["1", "2", "+500", "shop", "-", "hello", IDEMPOTENT],
        answer: "[1000, 1500]",
        after: &[
            "- used i = 1 99 1000 1500 1",
            "- windows i @ 1000",
            "+ bodies 2 = 1 1500 1000 shop -|hello",
            "+ destinations shop @ 1500",
            "+ schedule:shop 2 @ 1500",
            "+ used i = 2 2a 61000 1500 2",
            "+ windows i @ 61000",
        ],
    },
    Row {
        case: "over the quota",
        before: &[OPEN, SHOP_1],
        args: &["1", "2", "+500", "shop", "-", "hello", r#"{"quota":1}"#],
        answer: "[1000, -2]",
        after: &[],
    },
];
