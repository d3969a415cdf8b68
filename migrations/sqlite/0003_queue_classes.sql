-- A WorkItem's queue class: 0 interactive, 1 default, 2 bulk. Given when it is stored; those of before are `default`.

ALTER TABLE work_item ADD COLUMN queue_class INTEGER NOT NULL DEFAULT 1 CHECK (queue_class BETWEEN 0 AND 2);

-- As before, with a range of its own for each class: a claim of some classes reads nothing of the others.
DROP INDEX work_item_claim;
CREATE INDEX work_item_claim ON work_item (pack, work_type, generation, state, queue_class, turn, id)
WHERE state IN (1, 2, 3);
