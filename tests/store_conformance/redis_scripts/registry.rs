//! The scripts of the topic registry. Its revision comes from the server's clock.

use super::table::Row;

const ORDERS: &[&str] = &[r#"topics orders = {"shards":1}"#];
const CHANGED: &str = "+ revision = …";

/// The topic, the entry, the token that creates it, how many topics it may have created.
pub(super) const REGISTER: &[Row] = &[
    Row {
        case: "a new topic that was being deleted",
        before: &[&["departures orders = t"]],
        args: &["orders", r#"{"shards":1}"#, "", ""],
        answer: r#"{"shards":1}"#,
        after: &["- departures orders = t", CHANGED, r#"+ topics orders = {"shards":1}"#],
    },
    Row {
        case: "a topic that exists",
        before: &[ORDERS],
        args: &["orders", r#"{"shards":2}"#, "shop", "0"],
        answer: r#"{"shards":1}"#,
        after: &[],
    },
    Row {
        case: "the last topic that a token may create",
        before: &[&["created shop a @ 0", "created shop.eu b @ 0", "created sho c @ 0"]],
        args: &["orders", "{}", "shop", "2"],
        answer: "{}",
        after: &["+ created shop orders @ 0", CHANGED, "+ topics orders = {}"],
    },
    Row {
        case: "the token may create no more",
        before: &[&["created shop a @ 0", "created shop b @ 0"]],
        args: &["orders", "{}", "shop", "2"],
        answer: "",
        after: &[],
    },
    Row {
        case: "a token without a bound",
        before: &[],
        args: &["orders", "{}", "shop", ""],
        answer: "{}",
        after: &["+ created shop orders @ 0", CHANGED, "+ topics orders = {}"],
    },
];

pub(super) const POLICY: &[Row] = &[
    Row {
        case: "a topic",
        before: &[ORDERS],
        args: &["orders", "{}"],
        answer: "1",
        after: &["+ policies orders = {}", CHANGED],
    },
    Row { case: "no topic", before: &[], args: &["orders", "{}"], answer: "0", after: &[] },
];

pub(super) const PAUSE: &[Row] = &[
    Row {
        case: "a topic",
        before: &[ORDERS],
        args: &["orders"],
        answer: "1000",
        after: &["+ pauses orders = 1000", CHANGED],
    },
    Row {
        case: "a topic that is paused",
        before: &[ORDERS, &["pauses orders = 700"]],
        args: &["orders"],
        answer: "700",
        after: &[],
    },
    Row {
        case: "an earlier pause is remembered",
        before: &[ORDERS, &["pauses orders = - 5 6 dead"]],
        args: &["orders"],
        answer: "1000",
        after: &["- pauses orders = - 5 6 dead", "+ pauses orders = 1000 5 6 dead", CHANGED],
    },
    Row {
        case: "a text that cannot be read",
        before: &[ORDERS, &["pauses orders = what"]],
        args: &["orders"],
        answer: "1000",
        after: &["- pauses orders = what", "+ pauses orders = 1000", CHANGED],
    },
    Row { case: "no topic", before: &[], args: &["orders"], answer: "", after: &[] },
];

/// The topic, what its overdue tasks become, how many pauses are remembered.
pub(super) const RESUME: &[Row] = &[
    Row {
        case: "overdue tasks are delivered",
        before: &[ORDERS, &["pauses orders = 700"]],
        args: &["orders", "", "2"],
        answer: "1",
        after: &["- pauses orders = 700", CHANGED],
    },
    Row {
        case: "overdue tasks expire, and the oldest of three pauses is forgotten",
        before: &[ORDERS, &["pauses orders = 700 1 2 dead 3 4 expired"]],
        args: &["orders", "expired", "2"],
        answer: "1",
        after: &[
            "- pauses orders = 700 1 2 dead 3 4 expired",
            "+ pauses orders = - 3 4 expired 700 1000 expired",
            CHANGED,
        ],
    },
    Row {
        case: "it was not paused",
        before: &[ORDERS],
        args: &["orders", "", "2"],
        answer: "0",
        after: &[],
    },
    Row { case: "no topic", before: &[], args: &["orders", "", "2"], answer: "-1", after: &[] },
];

pub(super) const FORGET_MISFIRE: &[Row] = &[
    Row {
        case: "one of two",
        before: &[&["pauses orders = - 1 2 dead 3 4 expired"]],
        args: &["orders", "1 2 dead"],
        answer: "nil",
        after: &[
            "- pauses orders = - 1 2 dead 3 4 expired",
            "+ pauses orders = - 3 4 expired",
            CHANGED,
        ],
    },
    Row {
        case: "the last one",
        before: &[&["pauses orders = - 1 2 dead"]],
        args: &["orders", "1 2 dead"],
        answer: "nil",
        after: &["- pauses orders = - 1 2 dead", CHANGED],
    },
    Row {
        case: "a text that cannot be read",
        before: &[&["pauses orders = - 1 2"]],
        args: &["orders", "1 2 dead"],
        answer: "nil",
        after: &[],
    },
];

pub(super) const DEPART: &[Row] = &[
    Row {
        case: "a topic",
        before: &[ORDERS],
        args: &["orders", "t"],
        answer: r#"{"shards":1}"#,
        after: &["+ departures orders = t"],
    },
    Row {
        case: "no topic",
        before: &[],
        args: &["orders", "t"],
        answer: "",
        after: &["+ departures orders = t"],
    },
];

pub(super) const UNREGISTER: &[Row] = &[
    Row {
        case: "with everything that belongs to it",
        before: &[
            ORDERS,
            &["departures orders = t", "policies orders = {}", "pauses orders = 700"],
        ],
        args: &["orders", "t"],
        answer: "1",
        after: &[
            "- departures orders = t",
            "- pauses orders = 700",
            "- policies orders = {}",
            r#"- topics orders = {"shards":1}"#,
            CHANGED,
        ],
    },
    Row {
        case: "that a token created",
        before: &[&[
            "departures orders = t",
            r#"topics orders = {"shards":1,"created_by":"shop"}"#,
            "created shop orders @ 0",
            "created shop others @ 0",
        ]],
        args: &["orders", "t"],
        answer: "1",
        after: &[
            "- created shop orders @ 0",
            "- departures orders = t",
            r#"- topics orders = {"shards":1,"created_by":"shop"}"#,
            CHANGED,
        ],
    },
    Row {
        case: "with an entry that cannot be read",
        before: &[&["departures orders = t", "topics orders = 7"]],
        args: &["orders", "t"],
        answer: "1",
        after: &["- departures orders = t", "- topics orders = 7", CHANGED],
    },
    Row {
        case: "it was registered again since",
        before: &[ORDERS],
        args: &["orders", "t"],
        answer: "0",
        after: &[],
    },
    Row {
        case: "no topic",
        before: &[&["departures orders = t"]],
        args: &["orders", "t"],
        answer: "1",
        after: &["- departures orders = t"],
    },
];
