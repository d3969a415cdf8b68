-- Generations that come while hosts serve: a component is stored in chunks before its generation is, and a generation may
-- be there without ever having been active.
--   pack.active_generation   0 when none is
--   generation.activated_at  when it was last made active; null if it never was

-- By the component's SHA-256; what was stored before this version stands, whole, under the digest of its pack file.
CREATE TABLE component_chunk (
    digest    BLOB NOT NULL,
    position  INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    bytes     BLOB NOT NULL,
    PRIMARY KEY (digest, position)
) STRICT;

INSERT OR IGNORE INTO component_chunk (digest, position, stored_at, bytes)
SELECT digest, 0, installed_at, component FROM generation;

ALTER TABLE generation ADD COLUMN component_digest BLOB NOT NULL DEFAULT x'';
ALTER TABLE generation ADD COLUMN component_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE generation ADD COLUMN activated_at INTEGER;

UPDATE generation SET component_digest = digest, component_bytes = length(component), activated_at = installed_at;

ALTER TABLE generation DROP COLUMN component;
