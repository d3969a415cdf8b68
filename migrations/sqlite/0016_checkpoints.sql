-- What tells this store from every other one: copies of its shards' indexes lie under it, wherever they are kept.
CREATE TABLE store_identity (
    id BLOB NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

INSERT INTO store_identity (id) VALUES (randomblob(16));

-- Checkpoints of shards' indexes that count. Each was recorded by the shard's owner of that time, `number` in its epoch; the
-- digest is that of its manifest, which names its files and their digests. What is kept and not recorded here is nothing.
CREATE TABLE shard_checkpoint (
    shard      INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    applied    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    digest     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (shard, epoch, number)
) STRICT, WITHOUT ROWID;

-- Shards that a runtime cannot open: until then, it is nobody to give them to.
CREATE TABLE shard_withdrawal (
    shard      INTEGER NOT NULL,
    runtime    BLOB NOT NULL,
    until_time INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    PRIMARY KEY (shard, runtime)
) STRICT, WITHOUT ROWID;

-- How many of a message's attempts, over all of its generations, ended without anybody knowing what came of them.
ALTER TABLE message ADD COLUMN uncertain_attempts INTEGER NOT NULL DEFAULT 0;
