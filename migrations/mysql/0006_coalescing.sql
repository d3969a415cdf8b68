-- Coalescing, as version 6 of SQLite's schema: see there for what the column means.

ALTER TABLE work_item ADD COLUMN coalesces VARCHAR(63) COLLATE utf8mb4_bin;
