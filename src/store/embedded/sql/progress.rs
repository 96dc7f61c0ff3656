//! `progress`: the progress of waiting and leased tasks.

columns! {
    /// What `rows::read_pending` reads of `progress` (as `p`).
    pending, pending_columns: [
        lane = "p.lane",
        destination = "p.destination",
        leased = "p.leased",
        due = "p.due",
        attempts = "p.attempts",
        expiries = "p.expiries",
        cancelling = "p.cancelling",
        current = "p.current",
        past = "p.past",
        outcome = "p.outcome",
        expires = "p.expires",
        lease = "p.lease",
        returns = "p.returns",
    ]
}

// Replaces the row. `INSERT OR REPLACE` would first copy each page that it changes, to be able to
// undo it: on a table with an index, it makes several changes.
pub(crate) static PUT: &str = "INSERT INTO progress (id, lane, destination, leased, due, \
    attempts, expiries, cancelling, current, past, outcome, expires, lease, returns)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (id) DO UPDATE SET lane = excluded.lane, destination = excluded.destination, \
     leased = excluded.leased, due = excluded.due,
         attempts = excluded.attempts, expiries = excluded.expiries, \
         cancelling = excluded.cancelling, current = excluded.current,
         past = excluded.past, outcome = excluded.outcome, expires = excluded.expires, \
         lease = excluded.lease,
         returns = excluded.returns";
pub(crate) static DELETE: &str = "DELETE FROM progress WHERE id = ?";
pub(crate) static PENDING: &str =
    concat!("SELECT ", pending_columns!(), " FROM progress p WHERE p.id = ?");
/// Expired leases.
pub(crate) static OVERDUE_IDS: &str =
    "SELECT id FROM progress WHERE lane = ?1 AND leased = 1 AND (due <= ?2 OR due > ?3) LIMIT ?4";
/// Marks a cancel on leased tasks.
pub(crate) static CANCEL_LEASED: &str = "UPDATE progress SET cancelling = 1 WHERE id IN
     (SELECT id FROM progress WHERE lane = ? AND leased = 1 AND cancelling = 0 LIMIT ?)";

// Statements about leases, with the same columns.
rows! {
    /// The leases of workers.
    of_workers: "SELECT " [id = "p.id", pending = pending_columns!()]
        " FROM progress p JOIN destination d ON d.id = p.destination WHERE p.leased = 1 \
            AND d.called = 1
             AND coalesce(p.lease, 1) = 1";

    /// Leases whose deadline has passed.
    passed: "SELECT " [id = "p.id", pending = pending_columns!()]
        " FROM progress p WHERE p.lane = ? AND p.leased = 1 AND p.due <= ? ORDER BY p.due, p.id \
            LIMIT ?";

    /// Leases whose deadline is too far away.
    too_far: "SELECT " [id = "p.id", pending = pending_columns!()]
        " FROM progress p WHERE p.lane = ? AND p.leased = 1 AND p.due > ? ORDER BY p.due, p.id \
            LIMIT ?";
}

rows! {
    /// The first and the last deadline of a lane.
    deadlines: "SELECT " [
        first_deadline = "(SELECT min(due) FROM progress WHERE lane = ?1 AND leased = 1)",
        last_deadline = "(SELECT max(due) FROM progress WHERE lane = ?1 AND leased = 1)",
    ] "";

    /// A page of a list.
    page: "SELECT " [moment = "due", id] " FROM progress WHERE lane = ? AND leased = 1
             AND (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?";

    /// The same, the latest first.
    page_back: "SELECT " [moment = "due", id] " FROM progress WHERE lane = ? AND leased = 1
             AND (due, id) < (?, ?) AND due >= ? ORDER BY due DESC, id DESC LIMIT ?";
}
