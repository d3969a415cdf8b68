-- Gates that are not open: 1 paused, 2 closed. The namespace is '' where the gate is that of a whole destination.
CREATE TABLE destination_gate (
    destination TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    gate        INTEGER NOT NULL CHECK (gate BETWEEN 1 AND 2),
    reason      TEXT,
    changed_at  INTEGER NOT NULL,
    PRIMARY KEY (destination, namespace)
) STRICT, WITHOUT ROWID;

-- A message's place in an ordered lane, where it is not that of its last command (`seq`): what an operator settles about an
-- uncertain head leaves it the head.
ALTER TABLE message ADD COLUMN line_seq INTEGER;
