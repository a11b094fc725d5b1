-- Version 8: what is expected of schedules, their versions, and who changed what; results, logs, progress and
-- cancellation of runs; recorded messages; messages of schedules on their way to other sources.

ALTER TABLE schedules ADD COLUMN expected_since INTEGER;
ALTER TABLE schedules ADD COLUMN review_at INTEGER;
ALTER TABLE schedules ADD COLUMN overdue TEXT;
ALTER TABLE schedules ADD COLUMN skips TEXT;
ALTER TABLE occurrences ADD COLUMN result TEXT;
ALTER TABLE occurrences ADD COLUMN source TEXT;
ALTER TABLE occurrences ADD COLUMN message_id TEXT;
ALTER TABLE occurrences ADD COLUMN progress TEXT;
ALTER TABLE occurrences ADD COLUMN heard_at INTEGER;
ALTER TABLE occurrences ADD COLUMN log_lines INTEGER NOT NULL DEFAULT 0;
ALTER TABLE occurrences ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE occurrences ADD COLUMN log_dropped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE occurrences ADD COLUMN cancel_request TEXT;
ALTER TABLE occurrences ADD COLUMN resolved TEXT;

CREATE INDEX schedules_configuration ON schedules (configuration) WHERE configuration IS NOT NULL;
CREATE INDEX schedules_review ON schedules (review_at) WHERE review_at IS NOT NULL;
CREATE INDEX schedules_overdue ON schedules (name) WHERE overdue IS NOT NULL;

CREATE TABLE schedule_outbox (
  occurrence TEXT PRIMARY KEY,
  source TEXT NOT NULL,
  message TEXT NOT NULL,
  held_until INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX schedule_outbox_due ON schedule_outbox (source, held_until, occurrence);

CREATE INDEX occurrences_message_id ON occurrences (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX occurrences_cancel ON occurrences (id) WHERE cancel_request IS NOT NULL AND ended_at IS NULL;

CREATE TABLE occurrence_logs (
  occurrence TEXT NOT NULL,
  line INTEGER NOT NULL,
  at INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  stream TEXT NOT NULL,
  level TEXT,
  text TEXT NOT NULL,
  PRIMARY KEY (occurrence, line)
) STRICT, WITHOUT ROWID;

CREATE TABLE schedule_versions (
  schedule TEXT NOT NULL,
  version INTEGER NOT NULL,
  at INTEGER NOT NULL,
  origin TEXT NOT NULL,
  actor TEXT,
  definition TEXT NOT NULL,
  PRIMARY KEY (schedule, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  actor TEXT,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT
) STRICT;

CREATE INDEX ledger_audit_subject ON ledger_audit (subject, id);
CREATE INDEX ledger_audit_at ON ledger_audit (at);
