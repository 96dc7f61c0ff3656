-- A store as the first version wrote it: the schema of migration 1, and rows of every kind. Never brought up to date.
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

UPDATE meta SET value = 1799999999000042 WHERE name = 'last_id';
INSERT INTO topic VALUES ('orders', 1);
INSERT INTO lane VALUES (1, 'orders', 0);
INSERT INTO destination VALUES (1, 1, 'a', 1, 1799999990000), (2, 1, '@pull', 0, NULL);

INSERT INTO task VALUES
    (1, 1, 1, 1799999990000, 1799999980000, '{"max_attempts":3}', '{"sn":"a","url":"/"}'),
    (2, 1, 1, 1799999990000, 1799999980000, NULL, '{}'),
    (3, 1, 1, 1799999990000, 1799999980000, NULL, '{}'),
    (4, 1, 2, 1799999990000, 1799999980000, NULL, '{}'),
    (5, 1, 1, 1799999990000, 1799999980000, NULL, '{}'),
    (6, 1, 1, 1799999990000, 1799999980000, NULL, '{}'),
    (7, 1, 1, 1799999990000, 1799999980000, NULL, '{}'),
    (8, 1, 1, 1799999990000, 1799999980000, NULL, '{}');

-- 1 was never claimed, 2 failed once, 3 is being called, 4 is being pulled.
INSERT INTO schedule VALUES (1, 1799999990000, 1), (1, 1799999995000, 2);
INSERT INTO progress VALUES
    (2, 1, 1, 0, 1799999995000, 1, 0, 0, NULL, 'aaaaaaaaaaaaaaaaaaaaaaaa', '503 Service Unavailable'),
    (3, 1, 1, 1, 1800000020000, 1, 0, 0, 'bbbbbbbbbbbbbbbbbbbbbbbb', NULL, NULL),
    (4, 1, 2, 1, 1800000020000, 1, 0, 0, 'cccccccccccccccccccccccc', NULL, NULL);

-- Delivered, dead, cancelled, expired.
INSERT INTO history VALUES
    (5, 1, 2, 1799999991000, 1, 'dddddddddddddddddddddddd', NULL, '200 OK'),
    (6, 1, 3, 1799999992000, 2, 'eeeeeeeeeeeeeeeeeeeeeeee', 'ffffffffffffffffffffffff', '410 Gone'),
    (7, 1, 4, 1799999993000, 0, NULL, NULL, NULL),
    (8, 1, 5, 1799999994000, 0, NULL, NULL, NULL);

PRAGMA user_version = 1;
