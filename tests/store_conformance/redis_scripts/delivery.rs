//! The scripts of workers and consumers.

use super::table::Row;

const DUE: &[&str] =
    &["bodies 1 = 1 500 400 shop -|hello", "schedule:shop 1 @ 500", "destinations shop @ 500"];
const HELD: &[&str] =
    &["bodies 1 = 1 500 400 shop -|hello", "entries 1 = 1 0 - w r * shop ", "leased 1 @ 3000"];
/// Its lease has expired and was not swept.
const OVERDUE: &[&str] =
    &["bodies 1 = 1 500 400 shop -|hello", "entries 1 = 1 0 - w r * shop ", "leased 1 @ 900"];

/// Receipt, lease in ms, token, whether more is claimed, destinations to skip, leases to sweep,
/// body bytes, destinations to name, tasks to end, pauses, bytes in hand; then destinations and
/// slots.
const BY_A_WORKER: &[&str] =
    &["r", "2000", "me", "0", "0", "100", "1000", "10", "100", "", "0", "shop", "5"];

pub(super) const CLAIM: &[Row] = &[
    Row {
        case: "a due task is leased",
        before: &[DUE],
        args: BY_A_WORKER,
        answer: "[1, 1000, [1, 1, 1 500 400 shop -|hello], [], 3000]",
        after: &[
            "- destinations shop @ 500",
            "- schedule:shop 1 @ 500",
            "+ entries 1 = 1 0 - w r * shop ",
            "+ leased 1 @ 3000",
        ],
    },
    Row {
        case: "a task that is not due stays",
        before: &[&[
            "bodies 1 = 1 1001 400 shop -|hello",
            "schedule:shop 1 @ 1001",
            "destinations shop @ 1001",
        ]],
        args: BY_A_WORKER,
        answer: "[1, 1000, [], [], 1001]",
        after: &[],
    },
    Row {
        case: "another claimer has the lane",
        before: &[DUE, &["lock = other"]],
        args: BY_A_WORKER,
        answer: "[0, …]",
        after: &[],
    },
    Row {
        case: "the claimer of a burst keeps the lock",
        before: &[DUE, &["bodies 2 = 1 600 400 shop -|second", "schedule:shop 2 @ 600"]],
        args: &["r", "2000", "me", "1", "0", "100", "1000", "10", "100", "", "0", "shop", "1"],
        answer: "[1, 1000, [1, 1, 1 500 400 shop -|hello], [shop], 3000]",
        after: &[
            "- destinations shop @ 500",
            "- schedule:shop 1 @ 500",
            "+ destinations shop @ 600",
            "+ entries 1 = 1 0 - w r * shop ",
            "+ leased 1 @ 3000",
            "+ lock = me",
            "+ offsets shop = 500",
        ],
    },
    Row {
        case: "the claimer of a burst gives the lock back when nothing is due",
        before: &[&["lock = me"]],
        args: BY_A_WORKER,
        answer: "[1, 1000, [], [], ]",
        after: &["- lock = me"],
    },
    Row {
        case: "a claim without destinations goes past the lock",
        before: &[&["lock = other"]],
        args: &["r", "2000", "me", "0", "0", "100", "1000", "10", "100", "", "0"],
        answer: "[1, 1000, [], [], ]",
        after: &[],
    },
    Row {
        case: "a consumer goes past the lock",
        before: &[&[
            "bodies 1 = 1 500 400 @pull -|hello",
            "schedule:@pull 1 @ 500",
            "lock = other",
        ]],
        args: &["r", "2000", "", "0", "0", "100", "1000", "10", "100", "", "0", "@pull", "5"],
        answer: "[1, 1000, [1, 1, 1 500 400 @pull -|hello], [], 3000]",
        after: &[
            "- schedule:@pull 1 @ 500",
            "+ entries 1 = 1 0 - c r * @pull ",
            "+ leased 1 @ 3000",
            "+ offsets @pull = 500",
        ],
    },
    Row {
        case: "a second claim keeps the receipt of the first",
        before: &[DUE, &["entries 1 = 1 1 - w q * shop lease ran out"]],
        args: BY_A_WORKER,
        answer: "[1, 1000, [1, 2, 1 500 400 shop -|hello], [], 3000]",
        after: &[
            "- destinations shop @ 500",
            "- entries 1 = 1 1 - w q * shop lease ran out",
            "- schedule:shop 1 @ 500",
            "+ entries 1 = 2 1 - w r q shop lease ran out",
            "+ leased 1 @ 3000",
        ],
    },
    Row {
        case: "a claim without destinations sweeps an expired lease",
        before: &[OVERDUE],
        args: &["r", "2000", "", "0", "0", "100", "1000", "10", "100", "", "0"],
        answer: "[1, 1000, [], [shop], , [1, 0, 0, 0, 0, 0, 0, 0]]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- leased 1 @ 900",
            "+ destinations shop @ 900",
            "+ entries 1 = 1 1 - w r * shop lease ran out",
            "+ schedule:shop 1 @ 900",
        ],
    },
    Row {
        case: "a task dies at the sixteenth lease in a row that expires",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 16 15 - w r * shop lease ran out",
            "leased 1 @ 900",
        ]],
        args: &["r", "2000", "", "0", "0", "100", "1000", "10", "100", "", "0"],
        answer: "[1, 1000, [], [], , [1, 0, 0, 1, 0, 0, 0, 0]]",
        after: &[
            "- entries 1 = 16 15 - w r * shop lease ran out",
            "- leased 1 @ 900",
            "+ dead 1 @ 1000",
            "+ entries 1 = 16 16 dead - r * shop lease ran out",
        ],
    },
    Row {
        case: "a lease that has run out with a pending cancel ends the task",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 ! w r * shop ",
            "leased 1 @ 900",
        ]],
        args: &["r", "2000", "", "0", "0", "100", "1000", "10", "100", "", "0"],
        answer: "[1, 1000, [], [], , [1, 0, 1, 0, 0, 0, 0, 0]]",
        after: &[
            "- entries 1 = 1 0 ! w r * shop ",
            "- leased 1 @ 900",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 1 1 cancelled - r * shop lease ran out",
        ],
    },
    Row {
        case: "a task that a mover held waits again as before",
        before: &[&[
            "bodies 1 = 1 2500 400 shop -|hello",
            "entries 1 = 1 0 - m2500 r q shop 503",
            "leased 1 @ 900",
        ]],
        args: &["r", "2000", "", "0", "0", "100", "1000", "10", "100", "", "0"],
        answer: "[1, 1000, [], [], 2500]",
        after: &[
            "- entries 1 = 1 0 - m2500 r q shop 503",
            "- leased 1 @ 900",
            "+ destinations shop @ 2500",
            "+ entries 1 = 1 0 - - * r,q shop 503",
            "+ schedule:shop 1 @ 2500",
        ],
    },
    Row {
        case: "an expired task is ended, not leased",
        before: &[DUE, &["expiries 1 @ 800"]],
        args: BY_A_WORKER,
        answer: "[1, 1000, [], [], , [0, 0, 0, 0, 0, 1, 0, 0]]",
        after: &[
            "- destinations shop @ 500",
            "- expiries 1 @ 800",
            "- schedule:shop 1 @ 500",
            "+ entries 1 = 0 0 expired - * * shop not delivered in time",
            "+ expired 1 @ 1000",
        ],
    },
    Row {
        case: "a task that fell due in a pause is dead",
        before: &[DUE],
        args: &[
            "r",
            "2000",
            "me",
            "0",
            "0",
            "100",
            "1000",
            "10",
            "100",
            "450 600 dead",
            "0",
            "shop",
            "5",
        ],
        answer: "[1, 1000, [], [], , [0, 0, 0, 0, 0, 0, 0, 1]]",
        after: &[
            "- destinations shop @ 500",
            "- schedule:shop 1 @ 500",
            "+ dead 1 @ 1000",
            "+ entries 1 = 0 0 dead - * * shop fell due while the topic was paused",
        ],
    },
    Row {
        case: "a record that cannot be read is dead, and its neighbour is leased",
        before: &[DUE, &["bodies 2 = 9 what is this", "schedule:shop 2 @ 400"]],
        args: BY_A_WORKER,
        answer: "[1, 1000, [2, 0, 9 what is this, 1, 1, 1 500 400 shop -|hello], [], 3000, \
             [0, 0, 0, 0, 1, 0, 0, 0]]",
        after: &[
            "- destinations shop @ 500",
            "- schedule:shop 1 @ 500",
            "- schedule:shop 2 @ 400",
            "+ dead 2 @ 1000",
            "+ entries 1 = 1 0 - w r * shop ",
            "+ entries 2 = 0 0 dead - * * shop record cannot be read",
            "+ leased 1 @ 3000",
        ],
    },
    Row {
        case: "one call counts all that it ends",
        before: &[
            OVERDUE,
            &["bodies 2 = 1 600 400 shop -|second", "schedule:shop 2 @ 600", "expiries 2 @ 800"],
            &["bodies 3 = 1 700 400 shop -|third", "schedule:shop 3 @ 700"],
            &["bodies 4 = 9 what is this", "schedule:shop 4 @ 740"],
            &["bodies 5 = 1 750 400 shop -|fifth", "schedule:shop 5 @ 750"],
            &["destinations shop @ 600"],
        ],
        args: &[
            "r",
            "2000",
            "me",
            "0",
            "0",
            "100",
            "1000",
            "10",
            "100",
            "650 720 dead",
            "0",
            "shop",
            "5",
        ],
        answer: "[1, 1000, [4, 0, 9 what is this, 5, 1, 1 750 400 shop -|fifth, \
             1, 2, 1 500 400 shop -|hello], [], 3000, [1, 0, 0, 0, 1, 1, 0, 1]]",
        after: &[
            "- destinations shop @ 600",
            "- entries 1 = 1 0 - w r * shop ",
            "- expiries 2 @ 800",
            "- leased 1 @ 900",
            "- schedule:shop 2 @ 600",
            "- schedule:shop 3 @ 700",
            "- schedule:shop 4 @ 740",
            "- schedule:shop 5 @ 750",
            "+ dead 3 @ 1000",
            "+ dead 4 @ 1000",
            "+ entries 1 = 2 1 - w r r shop lease ran out",
            "+ entries 2 = 0 0 expired - * * shop not delivered in time",
            "+ entries 3 = 0 0 dead - * * shop fell due while the topic was paused",
            "+ entries 4 = 0 0 dead - * * shop record cannot be read",
            "+ entries 5 = 1 0 - w r * shop ",
            "+ expired 2 @ 1000",
            "+ leased 1 @ 3000",
            "+ leased 5 @ 3000",
        ],
    },
    Row {
        case: "a claim stops at its bytes",
        before: &[DUE, &["bodies 2 = 1 600 400 shop -|second", "schedule:shop 2 @ 600"]],
        args: &["r", "2000", "me", "0", "0", "100", "30", "10", "100", "", "0", "shop", "5"],
        answer: "[1, 1000, [1, 1, 1 500 400 shop -|hello], [shop], 3000]",
        after: &[
            "- destinations shop @ 500",
            "- schedule:shop 1 @ 500",
            "+ destinations shop @ 600",
            "+ entries 1 = 1 0 - w r * shop ",
            "+ leased 1 @ 3000",
            "+ offsets shop = 500",
        ],
    },
];

pub(super) const SETTLE: &[Row] = &[
    Row {
        case: "delivered by the holder",
        before: &[HELD],
        args: &["1", "r", "delivered", "0", "200 OK"],
        answer: "[done]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- leased 1 @ 3000",
            "+ delivered 1 @ 1000",
            "+ entries 1 = 1 0 delivered - r * shop 200 OK",
        ],
    },
    Row {
        case: "delivered after the lease was swept",
        before: &[DUE, &["entries 1 = 1 1 - w r * shop lease ran out"]],
        args: &["1", "r", "delivered", "0", "200 OK"],
        answer: "[done]",
        after: &[
            "- destinations shop @ 500",
            "- entries 1 = 1 1 - w r * shop lease ran out",
            "- schedule:shop 1 @ 500",
            "+ delivered 1 @ 1000",
            "+ entries 1 = 1 0 delivered - r * shop 200 OK",
        ],
    },
    Row {
        case: "a late success of an earlier receipt counts",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 2 0 - w s r shop 503",
            "leased 1 @ 3000",
        ]],
        args: &["1", "r", "delivered", "0", "200 OK"],
        answer: "[done]",
        after: &[
            "- entries 1 = 2 0 - w s r shop 503",
            "- leased 1 @ 3000",
            "+ delivered 1 @ 1000",
            "+ entries 1 = 2 0 delivered - r * shop 200 OK",
        ],
    },
    Row {
        case: "a retry waits",
        before: &[HELD],
        args: &["1", "r", "retry", "700", "503"],
        answer: "[call 1700]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- leased 1 @ 3000",
            "+ destinations shop @ 1700",
            "+ entries 1 = 1 0 - - * r shop 503",
            "+ schedule:shop 1 @ 1700",
        ],
    },
    Row {
        case: "a retry sent again",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 - - * r shop 503",
            "schedule:shop 1 @ 1700",
            "destinations shop @ 1700",
        ]],
        args: &["1", "r", "retry", "700", "503"],
        answer: "[done]",
        after: &[],
    },
    Row {
        case: "a retry of a task whose cancel is pending",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 ! w r * shop ",
            "leased 1 @ 3000",
        ]],
        args: &["1", "r", "retry", "700", "503"],
        answer: "[done cancelled]",
        after: &[
            "- entries 1 = 1 0 ! w r * shop ",
            "- leased 1 @ 3000",
            "+ cancelled 1 @ 1000",
            "+ entries 1 = 1 0 cancelled - r * shop 503",
        ],
    },
    Row {
        case: "a release gives the attempt back",
        before: &[HELD],
        args: &["1", "r", "release", "0", ""],
        answer: "[call 1000]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- leased 1 @ 3000",
            "+ destinations shop @ 1000",
            "+ entries 1 = 0 0 - - * * shop ",
            "+ schedule:shop 1 @ 1000",
        ],
    },
    Row {
        case: "the receiver acknowledges later",
        before: &[HELD],
        args: &["1", "r", "keep", "5000", "accepted"],
        answer: "[done]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- leased 1 @ 3000",
            "+ entries 1 = 1 0 - r r * shop accepted",
            "+ leased 1 @ 6000",
        ],
    },
    Row {
        case: "dead, with a call",
        before: &[&[
            concat!(
                r#"bodies 1 = 1 500 400 shop "#,
                r#"{"on_dead":{"sn":"alarm","url":"/dead","task_id":9}}|hello"#
            ),
            "entries 1 = 1 0 - w r * shop ",
            "leased 1 @ 3000",
        ]],
        args: &["1", "r", "dead", "0", "404"],
        answer: "[call 1000]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- leased 1 @ 3000",
            concat!(
                r#"+ bodies 9 = 1 1000 1000 alarm -|{"sn":"alarm","url":"\/dead","task_id":1,"#,
                r#""topic":"orders","attempts":1,"outcome":"404","content":"hello"}"#
            ),
            "+ dead 1 @ 1000",
            "+ destinations alarm @ 1000",
            "+ entries 1 = 1 0 dead - r * shop 404",
            "+ schedule:alarm 9 @ 1000",
        ],
    },
    Row {
        case: "several settles, two of one task",
        before: &[
            HELD,
            &[
                "bodies 2 = 1 500 400 shop -|second",
                "entries 2 = 1 0 - w r * shop ",
                "leased 2 @ 3000",
            ],
        ],
        args: &[
            "1",
            "r",
            "delivered",
            "0",
            "200 OK",
            "2",
            "r",
            "retry",
            "700",
            "503",
            "1",
            "r",
            "retry",
            "0",
            "503",
        ],
        answer: "[done, call 1700, delivered]",
        after: &[
            "- entries 1 = 1 0 - w r * shop ",
            "- entries 2 = 1 0 - w r * shop ",
            "- leased 1 @ 3000",
            "- leased 2 @ 3000",
            "+ delivered 1 @ 1000",
            "+ destinations shop @ 1700",
            "+ entries 1 = 1 0 delivered - r * shop 200 OK",
            "+ entries 2 = 1 0 - - * r shop 503",
            "+ schedule:shop 2 @ 1700",
        ],
    },
    Row {
        case: "moved to another store",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 0 0 - m500 r * shop ",
            "leased 1 @ 3000",
        ]],
        args: &["1", "r", "moved", "0", "moved"],
        answer: "[done]",
        after: &[
            "- entries 1 = 0 0 - m500 r * shop ",
            "- leased 1 @ 3000",
            "+ delivered 1 @ 1000",
            "+ entries 1 = 0 0 delivered - r * shop moved",
        ],
    },
    Row {
        case: "another receipt is refused",
        before: &[HELD],
        args: &["1", "other", "delivered", "0", "200 OK"],
        answer: "[leased]",
        after: &[],
    },
    Row {
        case: "a task that was never claimed, and an unknown task",
        before: &[DUE],
        args: &["1", "r", "retry", "0", "503", "2", "r", "retry", "0", "503"],
        answer: "[scheduled, unknown]",
        after: &[],
    },
];

pub(super) const EXTEND: &[Row] = &[
    Row {
        case: "the holder gets more time",
        before: &[HELD],
        args: &["1", "r", "5000"],
        answer: "done",
        after: &["- leased 1 @ 3000", "+ leased 1 @ 6000"],
    },
    Row {
        case: "a lease that was swept is taken back",
        before: &[DUE, &["entries 1 = 1 1 - w r * shop lease ran out", "expiries 1 @ 4000"]],
        args: &["1", "r", "5000"],
        answer: "done",
        after: &[
            "- destinations shop @ 500",
            "- expiries 1 @ 4000",
            "- schedule:shop 1 @ 500",
            "+ expiries 1 @ -4000",
            "+ leased 1 @ 6000",
        ],
    },
    Row {
        case: "another receipt",
        before: &[HELD],
        args: &["1", "other", "5000"],
        answer: "leased",
        after: &[],
    },
    Row {
        case: "never claimed",
        before: &[DUE],
        args: &["1", "r", "5000"],
        answer: "scheduled",
        after: &[],
    },
    Row {
        case: "ended",
        before: &[&[
            "bodies 1 = 1 500 400 shop -|hello",
            "entries 1 = 1 0 delivered - r * shop 200 OK",
            "delivered 1 @ 900",
        ]],
        args: &["1", "r", "5000"],
        answer: "delivered",
        after: &[],
    },
    Row { case: "unknown", before: &[], args: &["1", "r", "5000"], answer: "unknown", after: &[] },
];

pub(super) const NOTE: &[Row] = &[
    Row {
        case: "the first note",
        before: &[DUE],
        args: &["2", "1", "{a}"],
        answer: "nil",
        after: &["+ notes 1 = {a}"],
    },
    Row {
        case: "the oldest note goes",
        before: &[DUE, &["notes 1 = {a}|{b}"]],
        args: &["2", "1", "{c}"],
        answer: "nil",
        after: &["- notes 1 = {a}|{b}", "+ notes 1 = {b}|{c}"],
    },
    Row {
        case: "a task that is gone",
        before: &[],
        args: &["2", "1", "{a}"],
        answer: "nil",
        after: &[],
    },
];

pub(super) const NEXT: &[Row] = &[
    Row { case: "nothing", before: &[], args: &["workers"], answer: "[1000, ]", after: &[] },
    Row {
        case: "tasks for workers",
        before: &[DUE],
        args: &["workers"],
        answer: "[1000, 500]",
        after: &[],
    },
    Row {
        case: "tasks for consumers",
        before: &[DUE, &["schedule:@pull 2 @ 700"]],
        args: &["consumers"],
        answer: "[1000, 700]",
        after: &[],
    },
    Row {
        case: "a lease ends, or a task expires, before that",
        before: &[&[
            "destinations shop @ 9000",
            "leased 1 @ 3000",
            "expiries 2 @ 2500",
            "expiries 1 @ -700",
        ]],
        args: &["workers"],
        answer: "[1000, 2500]",
        after: &[],
    },
    Row {
        case: "a deadline beyond any lease has run out",
        before: &[&["leased 1 @ 900000000"]],
        args: &["consumers"],
        answer: "[1000, 1000]",
        after: &[],
    },
];
