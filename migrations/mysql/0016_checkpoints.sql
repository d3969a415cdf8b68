-- As version 8 of SQLite's schema: see there for what the columns mean.

CREATE TABLE store_identity (
    id BINARY(16) NOT NULL PRIMARY KEY
) DEFAULT CHARSET = utf8mb4;

INSERT INTO store_identity (id) VALUES (UNHEX(REPLACE(UUID(), '-', '')));

CREATE TABLE shard_checkpoint (
    shard      BIGINT NOT NULL,
    epoch      BIGINT NOT NULL,
    number     BIGINT NOT NULL,
    applied    BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    digest     BINARY(32) NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (shard, epoch, number)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE shard_withdrawal (
    shard      BIGINT NOT NULL,
    runtime    BINARY(16) NOT NULL,
    until_time BIGINT NOT NULL,
    reason     TEXT COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (shard, runtime)
) DEFAULT CHARSET = utf8mb4;

ALTER TABLE message ADD COLUMN uncertain_attempts BIGINT NOT NULL DEFAULT 0;
