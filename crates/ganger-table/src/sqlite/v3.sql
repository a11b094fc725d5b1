-- Version 3: what is finished, where a pool remembers that. Daemons of version 1 and 2 work with the
-- tables all the same.

CREATE TABLE finished_messages (
  source TEXT NOT NULL,
  queue TEXT NOT NULL,
  key TEXT NOT NULL,
  emit_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  reply_queue TEXT,
  reply_body ANY,
  reply_headers TEXT,
  PRIMARY KEY (source, queue, key, emit_id, step)
) STRICT;

CREATE INDEX finished_messages_expired ON finished_messages (expires_at);
