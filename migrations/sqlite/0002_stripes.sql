-- Counters in stripes: where several writers share a database, each changes rows of its own. A count is the sum over
-- stripes; here there is one.

ALTER TABLE work_item_counter RENAME TO work_item_counter_before;

CREATE TABLE work_item_counter (
    pack       TEXT NOT NULL,
    work_type  INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    stripe     INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    PRIMARY KEY (pack, work_type, generation, state, stripe)
) STRICT, WITHOUT ROWID;

INSERT INTO work_item_counter (pack, work_type, generation, state, stripe, count)
SELECT pack, work_type, generation, state, 0, count FROM work_item_counter_before;

DROP TABLE work_item_counter_before;

ALTER TABLE message_counter RENAME TO message_counter_before;

CREATE TABLE message_counter (
    state  INTEGER NOT NULL,
    stripe INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (state, stripe)
) STRICT, WITHOUT ROWID;

INSERT INTO message_counter (state, stripe, count) SELECT state, 0, count FROM message_counter_before;

DROP TABLE message_counter_before;
