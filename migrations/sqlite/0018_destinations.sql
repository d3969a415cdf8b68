-- Destinations that are set while hosts run. The document is what was set, as JSON, with the keys that a configuration has.
-- One that was removed while messages waited for it stays (removed = 1): what waits keeps the order that it had.
CREATE TABLE destination (
    name       TEXT NOT NULL PRIMARY KEY,
    document   TEXT NOT NULL,
    version    INTEGER NOT NULL,
    removed    INTEGER NOT NULL CHECK (removed BETWEEN 0 AND 1),
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last version that was given to any destination. Versions are never given twice, and whoever changes a destination holds
-- this row: changes come one after the other.
CREATE TABLE destination_head (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO destination_head (id, version) VALUES (1, 0);
