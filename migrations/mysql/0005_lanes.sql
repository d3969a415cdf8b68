-- Two lanes, as version 5 of SQLite's schema: see there for what the columns mean.

ALTER TABLE work_item CHANGE COLUMN lane_id source_lane_id BIGINT;

ALTER TABLE work_item ADD COLUMN delivery_lane_id BIGINT;

ALTER TABLE work_item ADD COLUMN blockers BIGINT NOT NULL DEFAULT 0;

UPDATE work_item SET blockers = 1 WHERE state = 0;

ALTER TABLE lane ADD COLUMN head BIGINT;

UPDATE lane JOIN work_item ON work_item.source_lane_id = lane.id AND work_item.lane_ordinal = lane.head_ordinal
    AND work_item.state IN (1, 2, 3, 5)
SET lane.head = work_item.ordinal;

ALTER TABLE lane DROP COLUMN head_ordinal;

ALTER TABLE work_item DROP KEY work_item_waiting;

ALTER TABLE work_item ADD COLUMN waiting_source BIGINT AS (IF(state = 0, source_lane_id, NULL)) VIRTUAL;

ALTER TABLE work_item ADD COLUMN waiting_delivery BIGINT AS (IF(state = 0, delivery_lane_id, NULL)) VIRTUAL;

ALTER TABLE work_item ADD KEY work_item_waiting_source (waiting_source, lane_ordinal);

ALTER TABLE work_item ADD KEY work_item_waiting_delivery (waiting_delivery, lane_ordinal);

ALTER TABLE receipt ADD COLUMN delivery_lane BIGINT NOT NULL DEFAULT 0;
