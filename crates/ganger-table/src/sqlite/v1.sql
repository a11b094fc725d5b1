-- Version 1 of the tables. proto-spec/table.md describes them for other programs.

CREATE TABLE consumer_messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL,
  body ANY NOT NULL,
  headers TEXT NOT NULL DEFAULT '{}',
  correlation_id TEXT,
  reply_to TEXT,
  message_id TEXT,
  content_type TEXT,
  key TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  available_after INTEGER NOT NULL DEFAULT 0 CHECK (available_after >= 0),
  attempts INTEGER NOT NULL DEFAULT 0,
  crashes INTEGER NOT NULL DEFAULT 0,
  lapses INTEGER NOT NULL DEFAULT 0,
  requeues INTEGER NOT NULL DEFAULT 0,
  suspect INTEGER NOT NULL DEFAULT 0,
  first_failed_at INTEGER,
  last_error TEXT,
  created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  owner INTEGER,
  claim INTEGER,
  claim_alone INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX consumer_messages_ready ON consumer_messages (queue, priority DESC, id)
  WHERE owner IS NULL AND available_after = 0;
CREATE INDEX consumer_messages_delayed ON consumer_messages (queue, available_after)
  WHERE owner IS NULL AND available_after > 0;
CREATE INDEX consumer_messages_claimed ON consumer_messages (owner)
  WHERE owner IS NOT NULL;

CREATE TABLE poisoned_messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  pool TEXT NOT NULL,
  queue TEXT NOT NULL,
  reason TEXT NOT NULL,
  error TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  lapses INTEGER NOT NULL,
  exit_code INTEGER,
  signal INTEGER,
  oom INTEGER NOT NULL,
  stderr TEXT NOT NULL,
  first_failed_at INTEGER NOT NULL,
  last_failed_at INTEGER NOT NULL,
  body ANY NOT NULL,
  headers TEXT NOT NULL,
  correlation_id TEXT,
  reply_to TEXT,
  message_id TEXT,
  content_type TEXT,
  key TEXT,
  priority INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  reply_queue TEXT,
  reply_body ANY,
  reply_headers TEXT
) STRICT;

CREATE TABLE owners (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  lease_ms INTEGER NOT NULL,
  heartbeat INTEGER NOT NULL DEFAULT 0,
  lock_file TEXT NOT NULL
) STRICT;
