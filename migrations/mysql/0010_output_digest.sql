-- As version 10 of SQLite's schema.
ALTER TABLE work_item ADD COLUMN output_digest BINARY(32);
