-- The road of a task. Bodies lie apart from what moves, so that a claim or a retry never rewrites a body.
-- Moments are Unix milliseconds. Names of lanes and destinations are stored once and meant by number elsewhere.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The id drawn last.
INSERT INTO meta (name, value) VALUES ('last_id', 0);

-- The id of this store, 64 random bits. The `webhook-id` of its tasks begins with it, so that no other store has the same ones.
INSERT INTO meta (name, value) VALUES ('store_id', random());

-- `policy` is JSON, null for none. `paused`: since when, null for not.
CREATE TABLE topic (
    name   TEXT PRIMARY KEY,
    shards INTEGER NOT NULL,
    policy TEXT,
    paused INTEGER
) STRICT, WITHOUT ROWID;

-- The counts: how many of the lane's tasks stand where, on its schedules, leased, and ended in each way. Each transaction that moves
-- tasks writes the difference.
CREATE TABLE lane (
    id        INTEGER PRIMARY KEY,
    topic     TEXT NOT NULL,
    shard     INTEGER NOT NULL,
    scheduled INTEGER NOT NULL DEFAULT 0,
    leased    INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0,
    dead      INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    expired   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, shard)
) STRICT;

-- The schedules of a lane. `called` is 0 for the pulled one. `earliest` is the due moment of the first waiting task
-- (null: none), so that one look finds what is next, however many destinations there are.
-- A destination whose number is 2^40 or above is deleted with its last task: the hosts of callers' URLs, of which there may be any
-- number. Services have numbers below and stay, so that their tasks need no entry in the index `task_by_host`.
CREATE TABLE destination (
    id       INTEGER PRIMARY KEY,
    lane     INTEGER NOT NULL,
    name     TEXT NOT NULL,
    called   INTEGER NOT NULL,
    earliest INTEGER,
    UNIQUE (lane, name)
) STRICT;

CREATE INDEX destination_by_earliest ON destination (lane, earliest) WHERE called = 1;

-- Bodies, from add to purge. `due` is the moment the body was stored with; `options` is JSON, null for none.
CREATE TABLE task (
    id          INTEGER PRIMARY KEY,
    lane        INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    options     TEXT,
    content     TEXT NOT NULL
) STRICT;

CREATE INDEX task_by_host ON task (destination) WHERE destination >= 1099511627776;

-- Waiting tasks in the order in which claims take them, so that a claim empties a few neighbouring pages even where
-- tasks of one moment were added far apart.
CREATE TABLE schedule (
    destination INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    id          INTEGER NOT NULL,
    PRIMARY KEY (destination, due, id)
) STRICT, WITHOUT ROWID;

-- How far tasks on their way have come: those that are leased, or have been. A waiting task without a row here was
-- never claimed, and waits for its body's `due`. The table stays as small as what is in flight or retrying.
-- leased 0: `due` is the due moment, as in `schedule`. leased 1: `due` is the deadline, `schedule` has no row.
-- `current` is the receipt of the holder, or of the last one while nobody superseded it (a waiting task that has one
-- was swept); `past` are the receipts before it in this revision, newest first, space-separated.
-- `expires`: the first moment at which the task is not worth delivering; null: never.
-- `lease`: who holds the task: 1 a worker, 2 a consumer, 3 a receiver that acknowledges later, 4 a mover. Kept when a lease is swept.
-- `returns`: what a task that a mover holds waits for again if it comes back.
CREATE TABLE progress (
    id          INTEGER PRIMARY KEY,
    lane        INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    leased      INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    expiries    INTEGER NOT NULL,
    cancelling  INTEGER NOT NULL,
    current     TEXT,
    past        TEXT,
    outcome     TEXT,
    expires     INTEGER,
    lease       INTEGER,
    returns     INTEGER
) STRICT;

CREATE INDEX progress_by_deadline ON progress (lane, due) WHERE leased = 1;

-- Tasks that ended. state 2: delivered, 3: dead, 4: cancelled, 5: expired.
CREATE TABLE history (
    id       INTEGER PRIMARY KEY,
    lane     INTEGER NOT NULL,
    state    INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    current  TEXT,
    past     TEXT,
    outcome  TEXT
) STRICT;

CREATE INDEX history_by_end ON history (lane, state, finished);

-- Destinations that are held by hand: none of their tasks is claimed until they are released.
CREATE TABLE hold (
    destination TEXT PRIMARY KEY,
    since       INTEGER NOT NULL  -- Unix ms
) STRICT, WITHOUT ROWID;

-- What tells tasks from one another, what ends them in time, and what is known of their attempts.
-- A task that asks for none of this has no row in any of these tables.

-- The task that owns a key of the lane: the newest that was added with it. `since`: when an add last set it, in Unix ms.
CREATE TABLE task_key (
    lane  INTEGER NOT NULL,
    key   TEXT NOT NULL,
    task  INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (lane, key)
) STRICT, WITHOUT ROWID;

-- What an idempotency key answered, until its window is over. It outlives the task.
CREATE TABLE idempotency (
    lane        INTEGER NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,   -- 16 bytes
    task        INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    until       INTEGER NOT NULL,
    PRIMARY KEY (lane, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_end ON idempotency (lane, until);

-- Waiting tasks that are not worth delivering from `moment` on. While a task is leased, `progress.expires` keeps its moment.
CREATE TABLE expiry (
    lane   INTEGER NOT NULL,
    moment INTEGER NOT NULL,
    id     INTEGER NOT NULL,
    PRIMARY KEY (lane, moment, id)
) STRICT, WITHOUT ROWID;

-- What attempts came to. `number` grows from note to note of a task.
CREATE TABLE note (
    task    INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    started INTEGER NOT NULL,
    took    INTEGER NOT NULL,    -- ms
    outcome TEXT NOT NULL,
    answer  TEXT NOT NULL,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

-- Pauses that are over; the tasks that fell due in them become `state` (as in `history`). `number` grows with each of a topic.
CREATE TABLE misfire (
    topic  TEXT NOT NULL,
    number INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    state  INTEGER NOT NULL,
    PRIMARY KEY (topic, number)
) STRICT, WITHOUT ROWID;

-- Dead tasks whose calls found no room on the disk. A claim stores them when there is some.
CREATE TABLE owed_call (
    lane INTEGER NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (lane, task)
) STRICT, WITHOUT ROWID;
