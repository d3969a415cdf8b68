-- Two lanes: a WorkItem may stand in the lane of its source and in the delivery lane of its route at once, with one place in
-- both. `blockers` counts those in which it is not the head: it is blocked (state 0) as long as there is one.

ALTER TABLE work_item RENAME COLUMN lane_id TO source_lane_id;
ALTER TABLE work_item ADD COLUMN delivery_lane_id INTEGER;

ALTER TABLE work_item ADD COLUMN blockers INTEGER NOT NULL DEFAULT 0 CHECK (blockers BETWEEN 0 AND 2);
UPDATE work_item SET blockers = 1 WHERE state = 0;

-- The lanes in which a row waits.
ALTER TABLE work_item ADD COLUMN waiting_source INTEGER AS (CASE WHEN state = 0 THEN source_lane_id END) VIRTUAL;
ALTER TABLE work_item ADD COLUMN waiting_delivery INTEGER AS (CASE WHEN state = 0 THEN delivery_lane_id END) VIRTUAL;

-- A lane's head by the ordinal of its WorkItem, so that the row is found from its lane. `lane.kind` is 1 for lanes of
-- sources and 2 for delivery lanes.
ALTER TABLE lane ADD COLUMN head INTEGER;
UPDATE lane SET head = work_item.ordinal FROM work_item
WHERE work_item.source_lane_id = lane.id AND work_item.lane_ordinal = lane.head_ordinal AND work_item.state IN (1, 2, 3, 5);
ALTER TABLE lane DROP COLUMN head_ordinal;

-- Who waits in a lane; the first is the head's successor.
DROP INDEX work_item_waiting;
CREATE UNIQUE INDEX work_item_waiting_source ON work_item (waiting_source, lane_ordinal) WHERE waiting_source IS NOT NULL;
CREATE UNIQUE INDEX work_item_waiting_delivery ON work_item (waiting_delivery, lane_ordinal)
WHERE waiting_delivery IS NOT NULL;

-- Whether the Events of a receipt stand in the delivery lane of their route.
ALTER TABLE receipt ADD COLUMN delivery_lane INTEGER NOT NULL DEFAULT 0 CHECK (delivery_lane IN (0, 1));
