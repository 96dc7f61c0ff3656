-- The tables of the embedded store. Content lies apart from the columns that change, so that a
-- claim or a retry never rewrites it. Moments are Unix milliseconds. Names of lanes and
-- destinations are stored once; other tables have their numbers.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last id that was drawn.
INSERT INTO meta (name, value) VALUES ('last_id', 0);

-- The id of this store, 64 random bits. The `webhook-id` of its tasks begins with it, so no other
-- store has the same ones.
INSERT INTO meta (name, value) VALUES ('store_id', random());

-- `policy` is JSON, or null. `paused` is the moment since when, or null.
CREATE TABLE topic (
    name   TEXT PRIMARY KEY,
    shards INTEGER NOT NULL,
    policy TEXT,
    paused INTEGER
) STRICT, WITHOUT ROWID;

-- The counts say how many of the lane's tasks are scheduled, leased, and ended in each way. Each
-- transaction that moves tasks writes the difference.
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

-- The schedules of a lane. `called` is 0 for pulled tasks. `earliest` is the due moment of the
-- first waiting task, or null, so one lookup finds the next task, however many destinations there
-- are. A destination whose number is 2^40 or higher is deleted with its last task: it is the host
-- of a caller's URL, and there may be any number of hosts. Services have lower numbers and stay, so
-- their tasks need no entry in the index `task_by_host`.
CREATE TABLE destination (
    id       INTEGER PRIMARY KEY,
    lane     INTEGER NOT NULL,
    name     TEXT NOT NULL,
    called   INTEGER NOT NULL,
    earliest INTEGER,
    UNIQUE (lane, name)
) STRICT;

CREATE INDEX destination_by_earliest ON destination (lane, earliest) WHERE called = 1;

-- Content, from add to purge. `due` is the stored due moment; `options` is JSON, or null.
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

-- Waiting tasks in the order in which claims take them, so a claim empties a few neighbouring pages
-- even if tasks of one moment were added far apart.
CREATE TABLE schedule (
    destination INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    id          INTEGER NOT NULL,
    PRIMARY KEY (destination, due, id)
) STRICT, WITHOUT ROWID;

-- The progress of tasks that are leased, or were leased and wait. A waiting task without a row here
-- was never claimed, and waits for `task.due`. The table is as small as the number of tasks in
-- flight or retrying.
-- - leased 0: `due` is the due moment, as in `schedule`. leased 1: `due` is the deadline, and
--   `schedule` has no row.
-- - `current` is the receipt of the holder, or of the last holder if it was not superseded (a
--   waiting task that has one was swept). `past` are the earlier receipts of this revision, newest
--   first, separated by spaces.
-- - `expires`: the first moment at which the task is not worth delivering; null: never.
-- - `lease`, the holder: 1 a worker, 2 a consumer, 3 a receiver that acknowledges later, 4 a mover.
--   Kept when a lease is swept.
-- - `returns`: the moment that a mover's task waits for again if it returns.
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

-- Destinations that operators hold: none of their tasks is claimed until they are released.
CREATE TABLE hold (
    destination TEXT PRIMARY KEY,
    since       INTEGER NOT NULL  -- Unix ms
) STRICT, WITHOUT ROWID;

-- Keys, expiries, notes and pauses. A task that uses none of them has no row in any of these
-- tables.

-- The task that owns a key of the lane: the newest that was added with it. `since`: when an add
-- last set it, in Unix ms.
CREATE TABLE task_key (
    lane  INTEGER NOT NULL,
    key   TEXT NOT NULL,
    task  INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (lane, key)
) STRICT, WITHOUT ROWID;

-- The answer of an idempotency key, until its window ends. It outlives the task.
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

-- Waiting tasks that are not worth delivering from `moment` on. While a task is leased,
-- `progress.expires` has the moment.
CREATE TABLE expiry (
    lane   INTEGER NOT NULL,
    moment INTEGER NOT NULL,
    id     INTEGER NOT NULL,
    PRIMARY KEY (lane, moment, id)
) STRICT, WITHOUT ROWID;

-- Notes of attempts. `number` grows from note to note of a task.
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

-- Past pauses; the tasks that fell due in them become `state` (as in `history`). `number` grows
-- with each pause of a topic.
CREATE TABLE misfire (
    topic  TEXT NOT NULL,
    number INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    state  INTEGER NOT NULL,
    PRIMARY KEY (topic, number)
) STRICT, WITHOUT ROWID;

-- Dead tasks whose dead-letter calls found no room on the disk. A claim stores these when there is
-- room.
CREATE TABLE owed_call (
    lane INTEGER NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (lane, task)
) STRICT, WITHOUT ROWID;
