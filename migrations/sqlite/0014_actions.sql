-- Actions: work of a pack's own for later. Each is a message to the pack's flow, and is handed off when it is due: then it
-- is a WorkItem of type 2, and its message stands as handed off (state 8).
--   message.action             the action's name; null for what is sent
--   message.action_pack        the pack that emitted it
--   message.action_generation  the generation that emitted it, and applies it
--   work_item.action           the ordinal of the message that the WorkItem applies

ALTER TABLE message ADD COLUMN action TEXT;
ALTER TABLE message ADD COLUMN action_pack TEXT;
ALTER TABLE message ADD COLUMN action_generation INTEGER;

-- What refers to a generation until it is handed off or has ended.
ALTER TABLE message ADD COLUMN open_action INTEGER AS (CASE WHEN state < 4 THEN action_generation END) VIRTUAL;
CREATE INDEX message_actions ON message (action_pack, open_action) WHERE open_action IS NOT NULL;

ALTER TABLE work_item ADD COLUMN action INTEGER;

-- An action is handed off once, whoever does it; what replays its WorkItem is told apart.
ALTER TABLE work_item ADD COLUMN handed_action INTEGER AS (CASE WHEN replay_of IS NULL THEN action END) VIRTUAL;
CREATE UNIQUE INDEX work_item_action ON work_item (handed_action) WHERE handed_action IS NOT NULL;

-- The table's check knows the new state. SQLite changes no constraint but so (https://sqlite.org/lang_altertable.html, 7);
-- the alternative, copying every message, would take as long as there are messages.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (state BETWEEN 0 AND 7)', 'CHECK (state BETWEEN 0 AND 8)')
WHERE type = 'table' AND name = 'message';
PRAGMA writable_schema = RESET;
