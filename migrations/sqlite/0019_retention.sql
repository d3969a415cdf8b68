-- Retention: what has ended, in the order in which it did, so that what has been kept long enough is found without a walk.
--   ended_key  when it ended; below 0 (the same, negated) where it failed and nobody acted on it; null while it has not ended
-- Of WorkItems only those that deliveries brought have it: what else is about an Event is found by that Event.
ALTER TABLE work_item ADD COLUMN ended_key INTEGER AS (
    CASE WHEN ordinal < 0 THEN NULL WHEN state = 4 OR (state = 5 AND replayed_at IS NOT NULL) THEN finished_at
    WHEN state = 5 THEN -finished_at END
) VIRTUAL;
CREATE INDEX work_item_ended ON work_item (ended_key) WHERE ended_key IS NOT NULL;

ALTER TABLE message ADD COLUMN ended_key INTEGER AS (
    CASE WHEN state IN (4, 5, 6, 8) THEN finished_at WHEN state = 7 THEN -finished_at END
) VIRTUAL;
CREATE INDEX message_ended ON message (ended_key) WHERE ended_key IS NOT NULL;

-- A receipt goes with the last of its Events.
CREATE INDEX event_of_receipt ON event (receipt);

-- The class of the WorkItem that an action is handed off as: that of the one that emitted it, which may be gone by then. Null
-- for what is no action, and for what was emitted before this version and has ended.
ALTER TABLE message ADD COLUMN queue_class INTEGER;
UPDATE message SET queue_class = (SELECT work_item.queue_class FROM work_item WHERE work_item.id = message.work_item_id)
WHERE open_action IS NOT NULL;

-- The largest place in a shard's feed of a message that was removed: whoever has applied less of the feed may miss what
-- became of it. No row: nothing was removed.
CREATE TABLE shard_trim (
    shard INTEGER PRIMARY KEY,
    seq   INTEGER NOT NULL
) STRICT;
