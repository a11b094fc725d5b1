-- Version 7: schedules, and the occurrences of their slots.

CREATE TABLE schedules (
  name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64 AND name NOT GLOB '*[^A-Za-z0-9_.-]*'),
  definition TEXT NOT NULL,
  origin TEXT NOT NULL DEFAULT 'sql' CHECK (origin IN ('file', 'api', 'sql')),
  configuration TEXT CHECK ((configuration IS NOT NULL) = (origin = 'file')),
  state TEXT NOT NULL DEFAULT 'active'
    CHECK (state IN ('active', 'paused', 'disabled', 'broken', 'ended')),
  state_reason TEXT,
  version INTEGER NOT NULL DEFAULT 0,
  applied TEXT,
  cursor INTEGER,
  runs INTEGER NOT NULL DEFAULT 0,
  missed INTEGER NOT NULL DEFAULT 0,
  next_slot INTEGER,
  wake_at INTEGER DEFAULT 0,
  created_at INTEGER NOT NULL
    DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  failures TEXT NOT NULL DEFAULT '[]',
  disabled_at INTEGER,
  trial_slot INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_state ON schedules (state);
CREATE INDEX schedules_wake ON schedules (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX schedules_ended ON schedules (cursor) WHERE state = 'ended' AND origin = 'sql';

CREATE TABLE occurrences (
  id TEXT PRIMARY KEY,
  schedule TEXT NOT NULL,
  version INTEGER NOT NULL,
  slot INTEGER,
  last_slot INTEGER,
  queue TEXT NOT NULL,
  state INTEGER NOT NULL,
  reason TEXT,
  attempt INTEGER NOT NULL DEFAULT 0,
  queued_at INTEGER NOT NULL,
  started_at INTEGER,
  ended_at INTEGER,
  error TEXT,
  missed INTEGER NOT NULL DEFAULT 0,
  watched INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX occurrences_slot ON occurrences (schedule, slot) WHERE slot IS NOT NULL;
CREATE INDEX occurrences_completed ON occurrences (schedule, slot)
  WHERE state = 2 AND slot IS NOT NULL;
CREATE INDEX occurrences_of_schedule ON occurrences (schedule, id);
CREATE INDEX occurrences_open ON occurrences (schedule) WHERE ended_at IS NULL;
CREATE INDEX occurrences_not_completed ON occurrences (state, id)
  WHERE ended_at IS NOT NULL AND state <> 2;
CREATE INDEX occurrences_watched ON occurrences (ended_at) WHERE watched = 1 AND ended_at IS NOT NULL;

CREATE TABLE occurrence_events (
  occurrence TEXT NOT NULL,
  at INTEGER NOT NULL,
  from_state INTEGER,
  to_state INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  note TEXT
) STRICT;

CREATE INDEX occurrence_events_of ON occurrence_events (occurrence);

CREATE TABLE ledger (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  ahead INTEGER NOT NULL DEFAULT 0,
  seen_at INTEGER NOT NULL DEFAULT 0,
  hold TEXT
) STRICT;

INSERT INTO ledger (id) VALUES (1);
