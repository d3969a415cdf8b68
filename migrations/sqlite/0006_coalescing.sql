-- Coalescing: the route of which a later WorkItem of the same source makes this one superfluous while it waits; null if none does.
-- Given when it is stored.
ALTER TABLE work_item ADD COLUMN coalesces TEXT;
