-- As version 7 of SQLite's schema: see there for what the columns mean.

CREATE TABLE destination_gate (
    destination VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    namespace   VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    gate        BIGINT NOT NULL,
    reason      TEXT COLLATE utf8mb4_bin,
    changed_at  BIGINT NOT NULL,
    PRIMARY KEY (destination, namespace)
) DEFAULT CHARSET = utf8mb4;

ALTER TABLE message ADD COLUMN line_seq BIGINT;
