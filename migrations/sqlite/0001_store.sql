-- The first schema. Codes are those of host/src/store/stored.rs:
--   work_item.state   0 blocked, 1 ready, 2 delayed, 3 processing, 4 done, 5 dead
--   work_item.work_type  1 connector_event, 2 workflow_action_apply
--   message.state     0 scheduled, 1 publishing, 2 retry_wait, 3 uncertain, 4 published, 5 cancelled, 6 expired, 7 dead
-- Ids are 16 bytes, digests 32, times milliseconds since 1970. An `ordinal` counts rows in the order they were stored.
-- There are no foreign keys: rows are only ever written together, by one writer, and never deleted.

-- "Fbay": tells this file from another program's.
PRAGMA application_id = 1180852601;

CREATE TABLE namespace (
    name       TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pack (
    name              TEXT NOT NULL PRIMARY KEY,
    active_generation INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE generation (
    pack         TEXT NOT NULL,
    number       INTEGER NOT NULL,
    digest       BLOB NOT NULL,
    installed_at INTEGER NOT NULL,
    manifest     TEXT NOT NULL,
    component    BLOB NOT NULL,
    PRIMARY KEY (pack, number),
    UNIQUE (pack, digest)
) STRICT;

-- What one request said about all of its events.
CREATE TABLE receipt (
    ordinal      INTEGER PRIMARY KEY,
    id           BLOB NOT NULL,
    pack         TEXT NOT NULL,
    generation   INTEGER NOT NULL,
    received_at  INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    headers      BLOB NOT NULL
) STRICT;

-- Written once, never changed. The body comes last, so that a listing does not read its pages.
CREATE TABLE event (
    ordinal        INTEGER PRIMARY KEY,
    id             BLOB NOT NULL UNIQUE,
    receipt        INTEGER NOT NULL,
    namespace      TEXT NOT NULL,
    route          TEXT NOT NULL,
    delivery_key   TEXT NOT NULL,
    source_key     TEXT,
    payload_digest BLOB NOT NULL,
    body           BLOB NOT NULL,
    UNIQUE (namespace, route, delivery_key)
) STRICT;

CREATE INDEX event_of_namespace ON event (namespace);

-- An ordered line of WorkItems. `head_ordinal` is the place of the one that may be claimed, null while nobody waits;
-- `last_ordinal` is the last place that was handed out. Enqueue and completion both write this row.
CREATE TABLE lane (
    id           INTEGER PRIMARY KEY,
    namespace    TEXT NOT NULL,
    pack         TEXT NOT NULL,
    kind         INTEGER NOT NULL,
    key          TEXT NOT NULL,
    head_ordinal INTEGER,
    last_ordinal INTEGER NOT NULL,
    UNIQUE (namespace, pack, kind, key)
) STRICT;

-- `ordinal` is the Event's ordinal * 16 + the work type: that makes (event, work type) unique, and an Event's WorkItems
-- a range of this table.
-- `turn` is the place in the line of claims that the state puts the row in: the lane ordinal when ready, `run_after` when
-- delayed, the end of the lease when processing.
-- `lane_id` is null when the row has no lane, or has left it.
CREATE TABLE work_item (
    ordinal         INTEGER PRIMARY KEY,
    id              BLOB NOT NULL UNIQUE,
    event_id        BLOB NOT NULL,
    work_type       INTEGER NOT NULL CHECK (work_type = ordinal & 15),
    namespace       TEXT NOT NULL,
    pack            TEXT NOT NULL,
    generation      INTEGER NOT NULL,
    state           INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5),
    turn            INTEGER NOT NULL,
    lane_id         INTEGER,
    lane_ordinal    INTEGER NOT NULL,
    run_after       INTEGER NOT NULL,
    lease_token     BLOB,
    epoch           INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    failures        INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    finished_at     INTEGER,
    ignored         INTEGER NOT NULL,
    note            TEXT,
    failure_class   TEXT,
    failure_message TEXT
) STRICT;

-- What can be claimed, now or by time alone. Finished and blocked rows are not in it, so it is as long as the backlog's
-- heads, and each claim reads one short range of it.
CREATE INDEX work_item_claim ON work_item (pack, work_type, generation, state, turn, id) WHERE state IN (1, 2, 3);

-- Who waits in a lane; the first is the head's successor.
CREATE UNIQUE INDEX work_item_waiting ON work_item (lane_id, lane_ordinal) WHERE state = 0;

-- What an operator looks for among many rows that are done.
CREATE INDEX work_item_dead ON work_item (ordinal) WHERE state = 5;

CREATE TABLE shard (
    id          INTEGER PRIMARY KEY,
    last_seq    INTEGER NOT NULL,
    owner       BLOB,
    epoch       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT;

CREATE TABLE message (
    ordinal      INTEGER PRIMARY KEY,
    id           BLOB NOT NULL UNIQUE,
    shard        INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    event_id     BLOB NOT NULL,
    work_item_id BLOB NOT NULL,
    namespace    TEXT NOT NULL,
    destination  TEXT NOT NULL,
    ordering_key TEXT,
    state        INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),
    generation   INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    eligible_at  INTEGER NOT NULL,
    expire_at    INTEGER,
    bytes        INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    admitted_at  INTEGER,
    finished_at  INTEGER,
    status       INTEGER,
    error        TEXT,
    UNIQUE (shard, seq)
) STRICT;

-- What a rebuild reads: it must not cost more for all that was ever published.
CREATE INDEX message_open ON message (shard, seq) WHERE state < 4;

-- What a dead owner left between admission and outcome.
CREATE INDEX message_publishing ON message (shard, id) WHERE state = 1;

CREATE INDEX message_of_event ON message (event_id);

-- What an operator looks for among many rows that were published.
CREATE INDEX message_trouble ON message (state) WHERE state IN (3, 7);

-- Apart from its message, so that a change of state does not rewrite the body. The ordinal is the message's.
CREATE TABLE message_payload (
    ordinal         INTEGER PRIMARY KEY,
    idempotency_key TEXT NOT NULL,
    content_type    TEXT NOT NULL,
    headers         BLOB NOT NULL,
    body            BLOB NOT NULL
) STRICT;

-- How many rows stand in each state, kept by every transaction that moves one.
CREATE TABLE work_item_counter (
    pack       TEXT NOT NULL,
    work_type  INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    PRIMARY KEY (pack, work_type, generation, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE message_counter (
    state INTEGER NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
