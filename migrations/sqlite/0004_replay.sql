-- Replay: a finished WorkItem is run again as one child. A replay's row has a negative ordinal, from a line of its own:
-- -16 * n + the work type. So (event, work type) stays unique among the WorkItems that deliveries brought, and what reads
-- those by their Event's ordinal never meets a replay.

-- Set by the older protocol only; here it is read, as a fence.
ALTER TABLE event ADD COLUMN replayed_at INTEGER;

-- When the row's one child was made.
ALTER TABLE work_item ADD COLUMN replayed_at INTEGER;

-- A replay's parent, and the ordinal of the Event that both are about.
ALTER TABLE work_item ADD COLUMN replay_of BLOB;
ALTER TABLE work_item ADD COLUMN replay_event INTEGER;

-- The ordinal of the Event that ended badly with this row: it is dead, and nobody ran it again.
ALTER TABLE work_item ADD COLUMN dead_event INTEGER AS (
    CASE WHEN state = 5 AND replayed_at IS NULL THEN coalesce(replay_event, ordinal >> 4) END
) VIRTUAL;

-- One child each, whoever asks.
CREATE UNIQUE INDEX work_item_child ON work_item (replay_of) WHERE replay_of IS NOT NULL;

CREATE INDEX work_item_replays ON work_item (replay_event) WHERE replay_event IS NOT NULL;

DROP INDEX work_item_dead;

CREATE INDEX work_item_dead ON work_item (dead_event) WHERE dead_event IS NOT NULL;
