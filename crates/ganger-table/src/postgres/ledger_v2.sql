-- Ledger, version 2: what is expected of schedules, their versions, and who changed what; results, logs, progress
-- and cancellation of runs; recorded messages; messages of schedules on their way to other sources.

ALTER TABLE schedules
  ADD COLUMN expected_since bigint,
  ADD COLUMN review_at bigint,
  ADD COLUMN overdue text,
  ADD COLUMN skips text;

ALTER TABLE occurrences
  ADD COLUMN result text,
  ADD COLUMN source text COLLATE "C",
  ADD COLUMN message_id text COLLATE "C",
  ADD COLUMN progress text,
  ADD COLUMN heard_at bigint,
  ADD COLUMN log_lines bigint NOT NULL DEFAULT 0,
  ADD COLUMN log_bytes bigint NOT NULL DEFAULT 0,
  ADD COLUMN log_dropped bigint NOT NULL DEFAULT 0,
  ADD COLUMN cancel_request text,
  ADD COLUMN resolved text;

CREATE INDEX schedules_configuration ON schedules (configuration) WHERE configuration IS NOT NULL;
CREATE INDEX schedules_review ON schedules (review_at) WHERE review_at IS NOT NULL;
CREATE INDEX schedules_overdue ON schedules (name) WHERE overdue IS NOT NULL;
CREATE INDEX occurrences_message_id ON occurrences (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX occurrences_cancel ON occurrences (id) WHERE cancel_request IS NOT NULL AND ended_at IS NULL;

CREATE TABLE schedule_outbox (
  occurrence text COLLATE "C" PRIMARY KEY,
  source text COLLATE "C" NOT NULL,
  message text NOT NULL,
  held_until bigint NOT NULL DEFAULT 0
);

CREATE INDEX schedule_outbox_due ON schedule_outbox (source, held_until, occurrence);

CREATE TABLE occurrence_logs (
  occurrence text COLLATE "C" NOT NULL,
  line bigint NOT NULL,
  at bigint NOT NULL,
  attempt bigint NOT NULL,
  stream text NOT NULL,
  level text,
  text text NOT NULL,
  PRIMARY KEY (occurrence, line)
);

CREATE TABLE schedule_versions (
  schedule text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  at bigint NOT NULL,
  origin text NOT NULL,
  actor text,
  definition text NOT NULL,
  PRIMARY KEY (schedule, version)
);

CREATE TABLE ledger_audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at bigint NOT NULL,
  actor text,
  action text NOT NULL,
  subject text COLLATE "C" NOT NULL,
  detail text
);

CREATE INDEX ledger_audit_subject ON ledger_audit (subject, id);
CREATE INDEX ledger_audit_at ON ledger_audit (at);

UPDATE ledger SET version = 2;
