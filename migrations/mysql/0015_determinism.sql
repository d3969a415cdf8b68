-- What a run came to and what was read for it, as version 10 of SQLite's schema: see there for what the columns mean.

ALTER TABLE work_item ADD COLUMN output_digest BINARY(32);

CREATE TABLE work_item_read (
    ordinal BIGINT NOT NULL,
    total   BIGINT NOT NULL,
    bytes   BIGINT NOT NULL,
    records LONGBLOB NOT NULL,
    PRIMARY KEY (ordinal)
) DEFAULT CHARSET = utf8mb4;
