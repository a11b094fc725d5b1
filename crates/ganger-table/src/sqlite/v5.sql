-- Version 5: a dead letter says which row it was, and those of one pool are found.

ALTER TABLE poisoned_messages ADD COLUMN row_id INTEGER;

CREATE INDEX poisoned_messages_pool ON poisoned_messages (pool);
