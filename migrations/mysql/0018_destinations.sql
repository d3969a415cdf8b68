-- As version 18 of SQLite's schema: see there for what the columns mean.

CREATE TABLE destination (
    name       VARCHAR(63) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    document   TEXT COLLATE utf8mb4_bin NOT NULL,
    version    BIGINT NOT NULL,
    removed    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE destination_head (
    id      BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;

INSERT INTO destination_head (id, version) VALUES (1, 0);
