-- Coalescing, as version 6 of SQLite's schema: see there for what the column means.

ALTER TABLE work_item ADD COLUMN coalesces BIGINT NOT NULL DEFAULT 0;
