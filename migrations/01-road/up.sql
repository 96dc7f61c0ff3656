-- The road of a task. Bodies lie apart from what moves, so that a claim or a retry never rewrites a body.
-- Moments are Unix milliseconds. Names of lanes and destinations are stored once and meant by number elsewhere.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The id drawn last.
INSERT INTO meta (name, value) VALUES ('last_id', 0);

CREATE TABLE topic (
    name   TEXT PRIMARY KEY,
    shards INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lane (
    id    INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    shard INTEGER NOT NULL,
    UNIQUE (topic, shard)
) STRICT;

-- The schedules of a lane. `called` is 0 for the pulled one. `earliest` is the due moment of the first waiting task
-- (null: none), so that one look finds what is next, however many destinations there are.
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
    outcome     TEXT
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
