-- Coalescing: whether a later WorkItem of the same source makes this one superfluous while it waits. Given when it is stored.
ALTER TABLE work_item ADD COLUMN coalesces INTEGER NOT NULL DEFAULT 0 CHECK (coalesces IN (0, 1));
