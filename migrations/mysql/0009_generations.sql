-- Generations that come while hosts serve, as version 9 of SQLite's schema: see there for what the columns mean.

CREATE TABLE component_chunk (
    digest    BINARY(32) NOT NULL,
    position  BIGINT NOT NULL,
    stored_at BIGINT NOT NULL,
    bytes     LONGBLOB NOT NULL,
    PRIMARY KEY (digest, position)
) DEFAULT CHARSET = utf8mb4;

INSERT IGNORE INTO component_chunk (digest, position, stored_at, bytes)
SELECT digest, 0, installed_at, component FROM generation;

ALTER TABLE generation ADD COLUMN component_digest BINARY(32);

ALTER TABLE generation ADD COLUMN component_bytes BIGINT NOT NULL DEFAULT 0;

ALTER TABLE generation ADD COLUMN activated_at BIGINT;

UPDATE generation SET component_digest = digest, component_bytes = LENGTH(component), activated_at = installed_at;

ALTER TABLE generation DROP COLUMN component;
