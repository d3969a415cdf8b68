-- The schema for servers that speak the MySQL protocol, as version 2 of SQLite's: see there for what the tables mean, and
-- host/src/store/stored.rs for the codes. Only what TiDB does too: no partial index (a generated column that is null
-- where such an index has no entry stands for it), no CHECK, no foreign key.
-- Names are at most 63 bytes, keys at most 512; `utf8mb4_bin` compares them byte by byte.

CREATE TABLE namespace (
    name       VARCHAR(63) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE pack (
    name              VARCHAR(63) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    active_generation BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE generation (
    pack         VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    number       BIGINT NOT NULL,
    digest       BINARY(32) NOT NULL,
    installed_at BIGINT NOT NULL,
    manifest     MEDIUMTEXT COLLATE utf8mb4_bin NOT NULL,
    component    LONGBLOB NOT NULL,
    PRIMARY KEY (pack, number),
    UNIQUE KEY generation_digest (pack, digest)
) DEFAULT CHARSET = utf8mb4;

-- The last number of a block that was handed out to a runtime.
CREATE TABLE sequence (
    name VARCHAR(63) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;

INSERT INTO sequence (name, last) VALUES ('receipt', 0), ('event', 0), ('lane', 0), ('message', 0);

CREATE TABLE receipt (
    ordinal      BIGINT NOT NULL PRIMARY KEY,
    id           BINARY(16) NOT NULL,
    pack         VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    generation   BIGINT NOT NULL,
    received_at  BIGINT NOT NULL,
    content_type TEXT COLLATE utf8mb4_bin NOT NULL,
    headers      MEDIUMBLOB NOT NULL
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE event (
    ordinal        BIGINT NOT NULL PRIMARY KEY,
    id             BINARY(16) NOT NULL,
    receipt        BIGINT NOT NULL,
    namespace      VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    route          VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    delivery_key   VARCHAR(512) COLLATE utf8mb4_bin NOT NULL,
    source_key     VARCHAR(512) COLLATE utf8mb4_bin,
    payload_digest BINARY(32) NOT NULL,
    body           LONGBLOB NOT NULL,
    UNIQUE KEY event_id (id),
    UNIQUE KEY event_delivery (namespace, route, delivery_key)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE lane (
    id           BIGINT NOT NULL PRIMARY KEY,
    namespace    VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    pack         VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    kind         BIGINT NOT NULL,
    `key`        VARCHAR(512) COLLATE utf8mb4_bin NOT NULL,
    head_ordinal BIGINT,
    last_ordinal BIGINT NOT NULL,
    UNIQUE KEY lane_key (namespace, pack, kind, `key`)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE work_item (
    ordinal         BIGINT NOT NULL PRIMARY KEY,
    id              BINARY(16) NOT NULL,
    event_id        BINARY(16) NOT NULL,
    work_type       BIGINT NOT NULL,
    namespace       VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    pack            VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    generation      BIGINT NOT NULL,
    state           BIGINT NOT NULL,
    turn            BIGINT NOT NULL,
    lane_id         BIGINT,
    lane_ordinal    BIGINT NOT NULL,
    run_after       BIGINT NOT NULL,
    lease_token     BINARY(16),
    epoch           BIGINT NOT NULL,
    attempt         BIGINT NOT NULL,
    failures        BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    finished_at     BIGINT,
    ignored         BIGINT NOT NULL,
    note            TEXT COLLATE utf8mb4_bin,
    failure_class   VARCHAR(63) COLLATE utf8mb4_bin,
    failure_message TEXT COLLATE utf8mb4_bin,
    dead_ordinal    BIGINT AS (IF(state = 5, ordinal, NULL)) VIRTUAL,
    UNIQUE KEY work_item_id (id),
    KEY work_item_claim (pack, work_type, generation, state, turn, id),
    KEY work_item_waiting (lane_id, state, lane_ordinal),
    KEY work_item_dead (dead_ordinal)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE shard (
    id          BIGINT NOT NULL PRIMARY KEY,
    last_seq    BIGINT NOT NULL,
    owner       BINARY(16),
    epoch       BIGINT NOT NULL,
    lease_until BIGINT NOT NULL
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE message (
    ordinal      BIGINT NOT NULL PRIMARY KEY,
    id           BINARY(16) NOT NULL,
    shard        BIGINT NOT NULL,
    seq          BIGINT NOT NULL,
    event_id     BINARY(16) NOT NULL,
    work_item_id BINARY(16) NOT NULL,
    namespace    VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    destination  VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    ordering_key TEXT COLLATE utf8mb4_bin,
    state        BIGINT NOT NULL,
    generation   BIGINT NOT NULL,
    attempt      BIGINT NOT NULL,
    due_at       BIGINT NOT NULL,
    eligible_at  BIGINT NOT NULL,
    expire_at    BIGINT,
    bytes        BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    admitted_at  BIGINT,
    finished_at  BIGINT,
    status       BIGINT,
    error        TEXT COLLATE utf8mb4_bin,
    open_seq     BIGINT AS (IF(state < 4, seq, NULL)) VIRTUAL,
    trouble      BIGINT AS (IF(state IN (3, 7), ordinal, NULL)) VIRTUAL,
    UNIQUE KEY message_id (id),
    UNIQUE KEY message_seq (shard, seq),
    KEY message_open (shard, open_seq),
    KEY message_publishing (shard, state, id),
    KEY message_of_event (event_id),
    KEY message_trouble (trouble)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE message_payload (
    ordinal         BIGINT NOT NULL PRIMARY KEY,
    idempotency_key TEXT COLLATE utf8mb4_bin NOT NULL,
    content_type    TEXT COLLATE utf8mb4_bin NOT NULL,
    headers         MEDIUMBLOB NOT NULL,
    body            LONGBLOB NOT NULL
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE work_item_counter (
    pack       VARCHAR(63) COLLATE utf8mb4_bin NOT NULL,
    work_type  BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    state      BIGINT NOT NULL,
    stripe     BIGINT NOT NULL,
    count      BIGINT NOT NULL,
    PRIMARY KEY (pack, work_type, generation, state, stripe)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE message_counter (
    state  BIGINT NOT NULL,
    stripe BIGINT NOT NULL,
    count  BIGINT NOT NULL,
    PRIMARY KEY (state, stripe)
) DEFAULT CHARSET = utf8mb4;
