//! The scripts of `fsck`. `check_redis` tests the flaws on whole stores. Here is a row for each
//! structure.

use super::table::Row;

const WAITING: &[&str] =
    &["bodies 1 = 1 1500 400 shop -|hello", "schedule:shop 1 @ 1500", "destinations shop @ 1500"];

// The arguments: structure, cursor, count, whether to repair, lanes, shard, seconds ahead,
// destinations.

pub(super) const FSCK: &[Row] = &[
    Row {
        case: "a lane in order",
        before: &[WAITING, &["offsets #shards = 1"]],
        args: &["bodies", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 1, 1, [], []]",
        after: &[],
    },
    Row {
        case: "another number of lanes",
        before: &[WAITING, &["offsets #shards = 2"]],
        args: &["bodies", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 1, 1, [[shards-differ, 2, 1]], []]",
        after: &["- offsets #shards = 2", "+ offsets #shards = 1"],
    },
    Row {
        case: "the moment at which a destination is due",
        before: &[WAITING, &["destinations shop @ 7"]],
        args: &["destinations", "0", "10", "1", "1", "0", "316224000", "shop"],
        answer: "[0, 0, 0, [[earliest-wrong, shop, 1]], []]",
        after: &["- destinations shop @ 7", "+ destinations shop @ 1500"],
    },
    Row {
        case: "a body without a place is scheduled",
        before: &[&["bodies 1 = 1 1500 400 shop -|hello"]],
        args: &["bodies", "0", "10", "1", "0", "0", "316224000"],
        answer: "[0, 1, 1, [[body-without-place, 1, 1]], []]",
        after: &["+ destinations shop @ 1500", "+ schedule:shop 1 @ 1500"],
    },
    Row {
        case: "a check without repair repairs nothing",
        before: &[&["bodies 1 = 1 1500 400 shop -|hello"]],
        args: &["bodies", "0", "10", "0", "0", "0", "316224000"],
        answer: "[0, 1, 1, [[body-without-place, 1, 0]], []]",
        after: &[],
    },
    Row {
        case: "a body that cannot be read is dead",
        before: &[&[
            "bodies 1 = what is this",
            "schedule:shop 1 @ 1500",
            "destinations shop @ 1500",
        ]],
        args: &["schedule", "0", "10", "1", "0", "0", "316224000", "shop"],
        answer: "[0, 0, 0, [[unreadable-body, 1, 1]], []]",
        after: &[
            "- destinations shop @ 1500",
            "- schedule:shop 1 @ 1500",
            "+ dead 1 @ 1000",
            "+ entries 1 = 0 0 dead - * * shop record cannot be read",
        ],
    },
    Row {
        case: "an entry that cannot be read is set aside",
        before: &[WAITING, &["entries 1 = what"]],
        args: &["bodies", "0", "10", "1", "0", "0", "316224000"],
        answer: "[0, 1, 1, [[unreadable-entry, 1, 1]], []]",
        after: &[
            "- entries 1 = what",
            "+ aside entries 1 1000 = what",
            "+ entries 1 = 1 0 - - * * shop ",
        ],
    },
    Row {
        case: "a lease without a receipt",
        before: &[&["bodies 1 = 1 1500 400 shop -|hello", "leased 1 @ 1700"]],
        args: &["bodies", "0", "10", "1", "0", "0", "316224000"],
        answer: "[0, 1, 1, [[leased-without-receipt, 1, 1]], []]",
        after: &[
            "- leased 1 @ 1700",
            "+ destinations shop @ 1700",
            "+ entries 1 = 1 0 - - * * shop ",
            "+ schedule:shop 1 @ 1700",
        ],
    },
    Row {
        case: "a task is not called before its moment, whatever its lease says",
        before: &[&["bodies 1 = 1 1500 400 shop -|hello", "leased 1 @ 900"]],
        args: &["bodies", "0", "10", "1", "0", "0", "316224000"],
        answer: "[0, 1, 1, [[leased-without-receipt, 1, 1]], []]",
        after: &[
            "- leased 1 @ 900",
            "+ destinations shop @ 1500",
            "+ entries 1 = 1 0 - - * * shop ",
            "+ schedule:shop 1 @ 1500",
        ],
    },
    Row {
        case: "a mover's task waits for the moment that its lease names",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 - m7000 * * shop ",
            "leased 1 @ 1200",
        ]],
        args: &["bodies", "0", "10", "1", "0", "0", "316224000"],
        answer: "[0, 1, 1, [[leased-without-receipt, 1, 1]], []]",
        after: &["- leased 1 @ 1200", "+ destinations shop @ 7000", "+ schedule:shop 1 @ 7000"],
    },
    Row {
        case: "a waiting task without an entry that a list of ends names",
        before: &[WAITING, &["delivered 1 @ 700"]],
        args: &["bodies", "0", "10", "1", "0", "0", "316224000"],
        answer: "[0, 1, 1, [[live-yet-listed, 1, 1]], []]",
        after: &["- delivered 1 @ 700"],
    },
    Row {
        case: "a schedule that names no body",
        before: &[&["schedule:shop 1 @ 1500", "destinations shop @ 1500"]],
        args: &["schedule", "0", "10", "1", "1", "0", "316224000", "shop"],
        answer: "[0, 0, 0, [[scheduled-without-body, 1, 1]], []]",
        after: &["- destinations shop @ 1500", "- schedule:shop 1 @ 1500"],
    },
    Row {
        case: "a member of a schedule that is no id",
        before: &[&["schedule:shop x @ 700", "destinations shop @ 700"]],
        args: &["schedule", "0", "10", "1", "1", "0", "316224000", "shop"],
        answer: "[0, 0, 0, [[not-an-id, x, 1]], []]",
        after: &[
            "- destinations shop @ 700",
            "- schedule:shop x @ 700",
            "+ aside schedule:shop x 1000 = 700",
        ],
    },
    Row {
        case: "a task on the schedule of another destination",
        before: &[WAITING, &["schedule:mail 1 @ 1700", "destinations mail @ 1700"]],
        args: &["schedule", "0", "10", "1", "1", "0", "316224000", "mail"],
        answer: "[0, 0, 0, [[wrong-schedule, 1, 1]], []]",
        after: &["- destinations mail @ 1700", "- schedule:mail 1 @ 1700"],
    },
    Row {
        case: "a task that stands only on the schedule of another destination",
        before: &[&[
            "bodies 1 = 1 1500 400 shop -|hello",
            "schedule:mail 1 @ 1700",
            "destinations mail @ 1700",
        ]],
        args: &["schedule", "0", "10", "1", "0", "0", "316224000", "mail"],
        answer: "[0, 0, 0, [[wrong-schedule, 1, 1], [body-without-place, 1, 1]], []]",
        after: &[
            "- destinations mail @ 1700",
            "- schedule:mail 1 @ 1700",
            "+ destinations shop @ 1700",
            "+ schedule:shop 1 @ 1700",
        ],
    },
    Row {
        case: "a record that cannot be read, of a task that has ended, on a schedule",
        before: &[&[
            "bodies 1 = what is this",
            "dead 1 @ 700",
            "entries 1 = 0 0 dead - * * shop x",
            "schedule:mail 1 @ 1700",
            "destinations mail @ 1700",
        ]],
        args: &["schedule", "0", "10", "1", "0", "0", "316224000", "mail"],
        answer: "[0, 0, 0, [[wrong-schedule, 1, 1]], []]",
        after: &["- destinations mail @ 1700", "- schedule:mail 1 @ 1700"],
    },
    Row {
        case: "an entry without a body",
        before: &[&["entries 1 = 1 0 - w r * shop "]],
        args: &["entries", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[entry-without-body, 1, 1]], []]",
        after: &["- entries 1 = 1 0 - w r * shop "],
    },
    Row {
        case: "a lease without a body",
        before: &[&["leased 1 @ 3000"]],
        args: &["leased", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[leased-without-body, 1, 1]], []]",
        after: &["- leased 1 @ 3000"],
    },
    Row {
        case: "an end without a body, and a member that is no id",
        before: &[&["dead 1 @ 900", "dead x @ 900"]],
        args: &["dead", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[ended-without-body, 1, 1], [not-an-id, x, 1]], []]",
        after: &["- dead 1 @ 900", "- dead x @ 900", "+ aside dead x 1000 = 900"],
    },
    Row {
        case: "a key without a task",
        before: &[&["owners k = 1 1 400"]],
        args: &["keys", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[key-without-task, k, 1]], []]",
        after: &["- owners k = 1 1 400"],
    },
    Row {
        case: "an idempotency key that cannot be read",
        before: &[&["used i = what", "windows i @ 1000"]],
        args: &["used", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[unreadable-key, i, 1]], []]",
        after: &["- used i = what", "- windows i @ 1000", "+ aside used i 1000 = what"],
    },
    Row {
        case: "a window that is not the key's",
        before: &[&["used i = 1 2a 60900 1500 1", "windows i @ 7"]],
        args: &["used", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[window-wrong, i, 1]], []]",
        after: &["- windows i @ 7", "+ windows i @ 60900"],
    },
    Row {
        case: "a window of no key",
        before: &[&["windows i @ 7"]],
        args: &["windows", "0", "10", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[window-wrong, i, 1]], []]",
        after: &["- windows i @ 7"],
    },
    Row {
        case: "a schedule that no planner looks at",
        before: &[&["recurring a = 1 0f 900 900 - - - - - -|{}"]],
        args: &["recurring", "0", "100", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[schedule-without-plan, a, 1]], [a]]",
        after: &["+ plans a @ 1000"],
    },
    Row {
        case: "one that is paused, and one that cannot be read",
        before: &[&["recurring a = 1 0f 900 900 - - o950 - - -|{}", "recurring b = 2"]],
        args: &["recurring", "0", "100", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[unreadable-schedule, b, 0]], [a, b]]",
        after: &[],
    },
    Row {
        case: "a look at a schedule that is paused",
        before: &[&["recurring a = 1 0f 900 900 - - o950 - - -|{}", "plans a @ 5"]],
        args: &["recurring", "0", "100", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[plan-without-schedule, a, 1]], [a]]",
        after: &["- plans a @ 5"],
    },
    Row {
        case: "a look at a schedule that is gone",
        before: &[&["recurring a = 1 0f 900 900 - - o950 - - -|{}", "plans a @ 5", "plans b @ 6"]],
        args: &["plans", "0", "100", "1", "1", "0", "316224000"],
        answer: "[0, 0, 0, [[plan-without-schedule, b, 1]], []]",
        after: &["- plans b @ 6"],
    },
];

pub(super) const FSCK_COUNTER: &[Row] = &[
    Row {
        case: "behind an id in use",
        before: &[&["last_id = 5", "id_run = <run> 4 0"]],
        args: &["9"],
        answer: "nil",
        after: &["- id_run = <run> 4 0", "- last_id = 5", "+ last_id = 9"],
    },
    Row {
        case: "in front of it",
        before: &[&["last_id = 10", "id_run = <run> 4 0"]],
        args: &["9"],
        answer: "nil",
        after: &[],
    },
    Row {
        case: "no number",
        before: &[&["last_id = what", "id_run = <run> 4 0"]],
        args: &["9"],
        answer: "nil",
        after: &["- id_run = <run> 4 0", "- last_id = what", "+ last_id = 9"],
    },
];

pub(super) const FSCK_TOPIC: &[Row] = &[
    Row {
        case: "as it was read",
        before: &[&["topics orders = what"]],
        args: &["orders", "what", r#"{"shards":1}"#],
        answer: "1",
        after: &["- topics orders = what", "+ revision = …", r#"+ topics orders = {"shards":1}"#],
    },
    Row {
        case: "changed since",
        before: &[&[r#"topics orders = {"shards":2}"#]],
        args: &["orders", "what", r#"{"shards":1}"#],
        answer: "0",
        after: &[],
    },
];

const CREATED: &[&str] = &[
    r#"topics a = {"shards":1,"created_by":"shop"}"#,
    r#"topics b = {"shards":1,"created_by":"mail"}"#,
    r#"topics c = {"shards":1}"#,
    "topics d = what",
    "created shop a @ 0",
    "created shop b @ 0",
    "created shop c @ 0",
    "created shop d @ 0",
    "created shop gone @ 0",
    "created nothing @ 0",
];

pub(super) const FSCK_CREATED: &[Row] = &[
    Row {
        case: "a check",
        before: &[CREATED],
        args: &["0"],
        answer: "[nothing, shop b, shop c, shop d, shop gone]",
        after: &[],
    },
    Row {
        case: "a repair",
        before: &[CREATED],
        args: &["1"],
        answer: "[nothing, shop b, shop c, shop d, shop gone]",
        after: &[
            "- created nothing @ 0",
            "- created shop b @ 0",
            "- created shop c @ 0",
            "- created shop d @ 0",
            "- created shop gone @ 0",
        ],
    },
];
