-- Replay, as version 4 of SQLite's schema: see there for what the columns mean.

INSERT INTO sequence (name, last) VALUES ('replay', 0);

ALTER TABLE event ADD COLUMN replayed_at BIGINT;

ALTER TABLE work_item ADD COLUMN replayed_at BIGINT;

ALTER TABLE work_item ADD COLUMN replay_of BINARY(16);

ALTER TABLE work_item ADD COLUMN replay_event BIGINT;

ALTER TABLE work_item DROP KEY work_item_dead;

ALTER TABLE work_item DROP COLUMN dead_ordinal;

ALTER TABLE work_item ADD COLUMN dead_event BIGINT
    AS (IF(state = 5 AND replayed_at IS NULL, COALESCE(replay_event, ordinal DIV 16), NULL)) VIRTUAL;

ALTER TABLE work_item ADD UNIQUE KEY work_item_child (replay_of);

ALTER TABLE work_item ADD KEY work_item_replays (replay_event);

ALTER TABLE work_item ADD KEY work_item_dead (dead_event);
