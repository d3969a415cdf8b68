-- As version 19 of SQLite's schema: see there for what the columns mean.

ALTER TABLE work_item ADD COLUMN ended_key BIGINT
    AS (IF(ordinal < 0, NULL, IF(state = 4 OR (state = 5 AND replayed_at IS NOT NULL), finished_at,
        IF(state = 5, -finished_at, NULL)))) VIRTUAL;

ALTER TABLE work_item ADD KEY work_item_ended (ended_key);

ALTER TABLE message ADD COLUMN ended_key BIGINT
    AS (IF(state IN (4, 5, 6, 8), finished_at, IF(state = 7, -finished_at, NULL))) VIRTUAL;

ALTER TABLE message ADD KEY message_ended (ended_key);

ALTER TABLE event ADD KEY event_of_receipt (receipt);

ALTER TABLE message ADD COLUMN queue_class BIGINT;

UPDATE message JOIN work_item AS emitter ON emitter.id = message.work_item_id
SET message.queue_class = emitter.queue_class WHERE message.open_action IS NOT NULL;

CREATE TABLE shard_trim (
    shard BIGINT NOT NULL PRIMARY KEY,
    seq   BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;
