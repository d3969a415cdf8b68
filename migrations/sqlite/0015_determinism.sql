-- What a run came to and what was read for it, so that it can be run again and compared.
--   work_item.output_digest  what the output of the run that succeeded hashes to; null before this version, and where none did
ALTER TABLE work_item ADD COLUMN output_digest BLOB;

-- Of a run that read something; the ordinal is the WorkItem's.
--   total, bytes  how many keys were asked for, and how many bytes their records had
--   records       the records, in the order in which the run got them; empty where they were too large to be kept
CREATE TABLE work_item_read (
    ordinal INTEGER PRIMARY KEY,
    total   INTEGER NOT NULL,
    bytes   INTEGER NOT NULL,
    records BLOB NOT NULL
) STRICT;
