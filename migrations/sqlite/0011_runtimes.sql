-- Runtimes that take part in the timeline, each until the time up to which it has said so. What leases say about the shards
-- counts all the same: this only decides who tries to have which.
CREATE TABLE runtime (
    id         BLOB NOT NULL PRIMARY KEY,
    live_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
