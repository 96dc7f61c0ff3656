-- What tells tasks from one another, what ends them in time, what is known of their attempts, and how many there are.
-- A task that asks for none of this has no row in any of these tables.

-- The task that owns a key of the lane: the newest that was added with it.
CREATE TABLE task_key (
    lane INTEGER NOT NULL,
    key  TEXT NOT NULL,
    task INTEGER NOT NULL,
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

ALTER TABLE progress ADD COLUMN expires INTEGER;

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

-- `policy` is JSON, null for none. `paused`: since when, null for not.
ALTER TABLE topic ADD COLUMN policy TEXT;
ALTER TABLE topic ADD COLUMN paused INTEGER;

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

-- How many of the lane's tasks stand where: on its schedules, leased, and ended in each way. Each transaction that moves tasks
-- writes the difference.
ALTER TABLE lane ADD COLUMN scheduled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN leased INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN delivered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN dead INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;

UPDATE lane SET
    scheduled = (SELECT count(*) FROM destination d CROSS JOIN schedule s ON s.destination = d.id WHERE d.lane = lane.id),
    leased = (SELECT count(*) FROM progress p WHERE p.lane = lane.id AND p.leased = 1),
    delivered = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 2),
    dead = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 3),
    cancelled = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 4),
    expired = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 5);
