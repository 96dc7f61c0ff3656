//! What a check judges row by row: the statement that finds a flaw, and the one that repairs it.
//!
//! `select` reads a page of rows. Its columns: the name of the row's flaw, or null; the topic and
//! the shard of its lane; the subject of a finding; the row's key. Its parameters: the key after
//! which the page begins, and the most rows.
//!
//! `repair` corrects the row with a key. If it deletes a row that the lane counts, it returns the
//! lane, and the number of the state under which the lane counts it.

/// One kind of flaws.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) select: &'static str,
    pub(crate) repair: &'static str,
}

/// Whether destination `d` is called: not one that is pulled, or whose name cannot be read.
macro_rules! is_called {
    () => {
        "(d.name <> '' AND d.name NOT GLOB '*[^-A-Za-z0-9._:]*')"
    };
}

/// The moment at which task `t` expires, or null.
macro_rules! expires {
    () => {
        "CASE WHEN t.due BETWEEN 0 AND 9007199254740991 AND json_valid(t.options)
         THEN t.due + CAST(json_extract(t.options, '$.expires_after') AS INTEGER) + 1 END"
    };
}

/// The counts of `lane`.
macro_rules! counts {
    () => {
        "(scheduled, leased, delivered, dead, cancelled, expired)"
    };
}

/// The rows that they count.
macro_rules! counted {
    () => {
        "((SELECT count(*) FROM destination d CROSS JOIN schedule s ON s.destination = d.id
           WHERE d.lane = lane.id),
          (SELECT count(*) FROM progress p WHERE p.lane = lane.id AND p.leased = 1),
          (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 2),
          (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 3),
          (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 4),
          (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 5))"
    };
}

pub(crate) static CALLED: Check = Check {
    select: concat!(
        "SELECT CASE WHEN d.called = ",
        is_called!(),
        " THEN NULL
         WHEN d.name = '@pull' OR ",
        is_called!(),
        " THEN 'called-wrong'
         ELSE 'unreadable-destination' END, l.topic, l.shard, d.name, d.id
         FROM destination d LEFT JOIN lane l ON l.id = d.lane
         WHERE d.id > ? ORDER BY d.id LIMIT ?"
    ),
    repair: concat!("UPDATE destination AS d SET called = ", is_called!(), " WHERE d.id = ?"),
};

pub(crate) static EARLIEST: Check = Check {
    select: "SELECT CASE
         WHEN d.earliest IS (SELECT min(due) FROM schedule WHERE destination = d.id) THEN NULL
         WHEN EXISTS (SELECT 1 FROM schedule WHERE destination = d.id) THEN 'earliest-wrong'
         ELSE 'listed-without-schedule' END, l.topic, l.shard, d.name, d.id
         FROM destination d LEFT JOIN lane l ON l.id = d.lane
         WHERE d.id > ? ORDER BY d.id LIMIT ?",
    repair: "UPDATE destination AS d
         SET earliest = (SELECT min(due) FROM schedule WHERE destination = d.id) WHERE d.id = ?",
};

/// A row of `schedule` is where its task waits. A task whose lane or destination does not exist has
/// no repair, so its row stays.
pub(crate) static SCHEDULE: Check = Check {
    select: "SELECT CASE
         WHEN t.id IS NULL THEN 'scheduled-without-body'
         WHEN h.id IS NOT NULL THEN 'ended-yet-live'
         WHEN t.id < 0 OR home.lane IS NOT t.lane OR hl.id IS NULL THEN NULL
         WHEN p.leased THEN 'scheduled-and-leased'
         WHEN s.destination <> t.destination THEN 'wrong-schedule'
         WHEN s.due <> ifnull(p.due, t.due) THEN 'due-differs' END,
         l.topic, l.shard, s.id, s.destination, s.due, s.id
         FROM schedule s LEFT JOIN task t ON t.id = s.id LEFT JOIN progress p ON p.id = s.id
         LEFT JOIN history h ON h.id = s.id LEFT JOIN destination d ON d.id = s.destination
         LEFT JOIN lane l ON l.id = d.lane LEFT JOIN destination home ON home.id = t.destination
         LEFT JOIN lane hl ON hl.id = home.lane
         WHERE (s.destination, s.due, s.id) > (?, ?, ?)
         ORDER BY s.destination, s.due, s.id LIMIT ?",
    repair: "DELETE FROM schedule WHERE destination = ? AND due = ? AND id = ?
         RETURNING (SELECT d.lane FROM destination d WHERE d.id = schedule.destination), 0",
};

/// A row of `progress`, `history` or `note` has a task.
pub(crate) static PROGRESS: Check = Check {
    select: "SELECT CASE WHEN t.id IS NULL
         THEN iif(p.leased, 'leased-without-body', 'entry-without-body') END,
         l.topic, l.shard, p.id, p.id
         FROM progress p LEFT JOIN task t ON t.id = p.id LEFT JOIN lane l ON l.id = p.lane
         WHERE p.id > ? ORDER BY p.id LIMIT ?",
    repair: "DELETE FROM progress WHERE id = ? RETURNING iif(leased = 1, lane, NULL), 1",
};
pub(crate) static HISTORY: Check = Check {
    select: "SELECT CASE WHEN t.id IS NULL THEN 'ended-without-body' END,
         l.topic, l.shard, h.id, h.id
         FROM history h LEFT JOIN task t ON t.id = h.id LEFT JOIN lane l ON l.id = h.lane
         WHERE h.id > ? ORDER BY h.id LIMIT ?",
    repair: "DELETE FROM history WHERE id = ?
         RETURNING iif(state BETWEEN 2 AND 5, lane, NULL), state",
};
pub(crate) static NOTES: Check = Check {
    select: "SELECT CASE WHEN t.id IS NULL THEN 'note-without-body' END, NULL, NULL, n.task, n.task
         FROM note n LEFT JOIN task t ON t.id = n.task
         WHERE n.task > ? GROUP BY n.task ORDER BY n.task LIMIT ?",
    repair: super::note::DELETE_OF_TASK,
};

/// Progress has the moment at which its task expires.
pub(crate) static EXPIRES: Check = Check {
    select: concat!(
        "SELECT CASE WHEN p.expires IS NOT ",
        expires!(),
        " THEN 'expiry-wrong' END,
         l.topic, l.shard, p.id, p.id
         FROM progress p JOIN task t ON t.id = p.id LEFT JOIN lane l ON l.id = t.lane
         WHERE p.id > ? ORDER BY p.id LIMIT ?"
    ),
    repair: concat!(
        "UPDATE progress SET expires = (SELECT ",
        expires!(),
        " FROM task t \
         WHERE t.id = progress.id) WHERE id = ?"
    ),
};

/// A waiting task that expires is listed.
pub(crate) static EXPIRING: Check = Check {
    select: concat!(
        "SELECT CASE WHEN ",
        expires!(),
        " IS NOT NULL AND ifnull(p.leased, 0) = 0 AND h.id IS NULL
         AND NOT EXISTS (SELECT 1 FROM expiry e
             WHERE e.lane = t.lane AND e.moment = ",
        expires!(),
        " AND e.id = t.id)
         THEN 'expiry-wrong' END, l.topic, l.shard, t.id, t.id
         FROM task t LEFT JOIN progress p ON p.id = t.id LEFT JOIN history h ON h.id = t.id
         LEFT JOIN lane l ON l.id = t.lane
         WHERE t.id > ? ORDER BY t.id LIMIT ?"
    ),
    repair: concat!(
        "INSERT OR IGNORE INTO expiry (lane, moment, id)
         SELECT t.lane, ",
        expires!(),
        ", t.id FROM task t WHERE t.id = ?"
    ),
};

/// And nothing else is.
pub(crate) static EXPIRY: Check = Check {
    select: concat!(
        "SELECT CASE WHEN t.lane IS NOT e.lane OR p.leased OR h.id IS NOT NULL
         OR e.moment IS NOT ",
        expires!(),
        " THEN 'expiry-wrong' END,
         l.topic, l.shard, e.id, e.lane, e.moment, e.id
         FROM expiry e LEFT JOIN task t ON t.id = e.id LEFT JOIN progress p ON p.id = e.id
         LEFT JOIN history h ON h.id = e.id LEFT JOIN lane l ON l.id = e.lane
         WHERE (e.lane, e.moment, e.id) > (?, ?, ?) ORDER BY e.lane, e.moment, e.id LIMIT ?"
    ),
    repair: super::expiry::DELETE,
};

/// A key names a task that has it, unless the task's options cannot be read.
pub(crate) static KEYS: Check = Check {
    select: "SELECT CASE
         WHEN t.lane IS NOT k.lane THEN 'key-without-task'
         WHEN NOT json_valid(t.options) THEN NULL
         WHEN json_extract(t.options, '$.key') IS NOT k.key THEN 'key-without-task' END,
         l.topic, l.shard, k.key, k.lane, k.key
         FROM task_key k LEFT JOIN task t ON t.id = k.task LEFT JOIN lane l ON l.id = k.lane
         WHERE (k.lane, k.key) > (?, ?) ORDER BY k.lane, k.key LIMIT ?",
    repair: "DELETE FROM task_key WHERE lane = ? AND key = ?",
};

/// The answer of an idempotency key can be read. Ids have the same bounds as moments.
pub(crate) static ANSWERS: Check = Check {
    select: "SELECT CASE WHEN l.id IS NULL OR length(i.fingerprint) <> 16
         OR min(i.task, i.due, i.until) < 0 OR max(i.task, i.due, i.until) > 9007199254740991
         THEN 'unreadable-key' END, l.topic, l.shard, i.key, i.lane, i.key
         FROM idempotency i LEFT JOIN lane l ON l.id = i.lane
         WHERE (i.lane, i.key) > (?, ?) ORDER BY i.lane, i.key LIMIT ?",
    repair: "DELETE FROM idempotency WHERE lane = ? AND key = ?",
};

/// The counter of ids has passed all ids. Its key is its name.
pub(crate) static COUNTER: Check = Check {
    select: "SELECT CASE
         WHEN m.value IS NULL OR m.value NOT BETWEEN 0 AND 9007199254740991
         THEN 'unreadable-counter'
         WHEN m.value < t.last THEN 'counter-behind' END,
         NULL, NULL, CASE WHEN m.value < t.last THEN t.last ELSE 'last_id' END, 'last_id'
         FROM (SELECT max(id) AS last FROM task) t LEFT JOIN meta m ON m.name = 'last_id'
         WHERE 'last_id' > ? LIMIT ?",
    repair: "INSERT OR REPLACE INTO meta (name, value) SELECT ?, ifnull(max(id), 0) FROM task",
};

pub(crate) static COUNTS: Check = Check {
    select: concat!(
        "SELECT CASE WHEN ",
        counts!(),
        " <> ",
        counted!(),
        " THEN 'counts-wrong' END,
         topic, shard, topic || ':' || shard, id FROM lane WHERE id > ? ORDER BY id LIMIT ?"
    ),
    repair: concat!("UPDATE lane SET ", counts!(), " = ", counted!(), " WHERE id = ?"),
};
