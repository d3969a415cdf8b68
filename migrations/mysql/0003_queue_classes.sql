-- As version 3 of SQLite's. One change a statement: some servers do not index a column that the same statement adds.

ALTER TABLE work_item ADD COLUMN queue_class BIGINT NOT NULL DEFAULT 1;

ALTER TABLE work_item DROP KEY work_item_claim;

ALTER TABLE work_item ADD KEY work_item_claim (pack, work_type, generation, state, queue_class, turn, id);
