-- As version 11 of SQLite's schema: see there for what the columns mean.

CREATE TABLE runtime (
    id         BINARY(16) NOT NULL PRIMARY KEY,
    live_until BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;
