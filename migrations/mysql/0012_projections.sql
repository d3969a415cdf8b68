-- Source projections, as version 12 of SQLite's schema: see there for what the columns mean.

-- A route and a source, with a colon between.
ALTER TABLE lane MODIFY COLUMN `key` VARCHAR(576) COLLATE utf8mb4_bin NOT NULL;

ALTER TABLE work_item ADD COLUMN projection_key VARCHAR(512) COLLATE utf8mb4_bin;

ALTER TABLE work_item ADD COLUMN projection_active_key VARCHAR(512) COLLATE utf8mb4_bin;

ALTER TABLE work_item ADD COLUMN active_projection BIGINT
    AS (IF(projection_active_key IS NULL, NULL, source_lane_id)) VIRTUAL;

ALTER TABLE work_item ADD UNIQUE KEY work_item_active_projection (active_projection);

CREATE TABLE coverage_mark (
    id      BIGINT NOT NULL PRIMARY KEY,
    ordinal BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;
