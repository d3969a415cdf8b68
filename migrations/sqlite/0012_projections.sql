-- Source projections: of all that came about a source, one WorkItem at a time stands for it, its *generation*, and at most one more
-- is queued to follow. Its line is a lane of its own (`lane.kind` 3, key `route:source`), whose id is in `source_lane_id`.

-- The source that a row is a generation of. Given when it is stored.
ALTER TABLE work_item ADD COLUMN projection_key TEXT;

-- The same from the moment at which the row is the active generation until it lets the next one go on. Null with a
-- `projection_key` and no end: a queued successor, which no claim takes.
ALTER TABLE work_item ADD COLUMN projection_active_key TEXT;

-- A projection has one active generation.
CREATE UNIQUE INDEX work_item_active_projection ON work_item (source_lane_id) WHERE projection_active_key IS NOT NULL;

-- Up to where every Event was once seen to have its WorkItem: the next start looks from there on. One row, if any.
CREATE TABLE coverage_mark (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    ordinal INTEGER NOT NULL
) STRICT;
