-- Version 4 of the tables: a key that only one message has at a time.

ALTER TABLE consumer_messages ADD COLUMN unique_key TEXT;
ALTER TABLE consumer_messages ADD COLUMN unique_scope TEXT
  CHECK (unique_scope IN ('waiting', 'waiting_or_running', 'until'));
ALTER TABLE consumer_messages ADD COLUMN unique_until INTEGER
  CHECK ((unique_until IS NOT NULL) = (unique_scope IS 'until'));
ALTER TABLE consumer_messages ADD COLUMN unique_released INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumer_messages ADD COLUMN
  unique_hold TEXT AS (CASE WHEN unique_released = 0 THEN unique_key END) VIRTUAL;

CREATE UNIQUE INDEX consumer_messages_unique ON consumer_messages (queue, unique_hold)
  WHERE unique_hold IS NOT NULL;

CREATE TRIGGER consumer_messages_until BEFORE INSERT ON consumer_messages
WHEN NEW.unique_key IS NOT NULL
BEGIN
  UPDATE consumer_messages SET unique_released = 1
  WHERE queue = NEW.queue AND unique_hold = NEW.unique_key
    AND unique_until <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER);
END;

ALTER TABLE poisoned_messages ADD COLUMN unique_key TEXT;
ALTER TABLE poisoned_messages ADD COLUMN unique_scope TEXT;
ALTER TABLE poisoned_messages ADD COLUMN unique_until INTEGER;
