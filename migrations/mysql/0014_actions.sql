-- Actions, as version 14 of SQLite's schema: see there for what the columns mean.

-- Beside the names that operators choose there is `flow:` with a pack's name.
ALTER TABLE message MODIFY destination VARCHAR(68) COLLATE utf8mb4_bin NOT NULL;

ALTER TABLE destination_gate MODIFY destination VARCHAR(68) COLLATE utf8mb4_bin NOT NULL;

ALTER TABLE message ADD COLUMN action TEXT COLLATE utf8mb4_bin;

ALTER TABLE message ADD COLUMN action_pack VARCHAR(63) COLLATE utf8mb4_bin;

ALTER TABLE message ADD COLUMN action_generation BIGINT;

ALTER TABLE message ADD COLUMN open_action BIGINT AS (IF(state < 4, action_generation, NULL)) VIRTUAL;

ALTER TABLE message ADD KEY message_actions (action_pack, open_action);

ALTER TABLE work_item ADD COLUMN action BIGINT;

ALTER TABLE work_item ADD COLUMN handed_action BIGINT AS (IF(replay_of IS NULL, action, NULL)) VIRTUAL;

ALTER TABLE work_item ADD UNIQUE KEY work_item_action (handed_action);
