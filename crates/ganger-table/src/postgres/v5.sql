-- Version 5: a dead letter says which row it was, and those of one pool are found.

ALTER TABLE poisoned_messages ADD COLUMN row_id bigint;

CREATE INDEX poisoned_messages_pool ON poisoned_messages (pool, id);

UPDATE ganger_version SET version = 5;
