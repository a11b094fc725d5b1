-- Ledger, version 1: schedules, and the occurrences of their slots.

CREATE TABLE schedules (
  name text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_.-]{1,64}$'),
  definition text NOT NULL,
  origin text NOT NULL DEFAULT 'sql' CHECK (origin IN ('file', 'api', 'sql')),
  configuration text CHECK ((configuration IS NOT NULL) = (origin = 'file')),
  state text NOT NULL DEFAULT 'active'
    CHECK (state IN ('active', 'paused', 'disabled', 'broken', 'ended')),
  state_reason text,
  version bigint NOT NULL DEFAULT 0,
  applied text,
  cursor bigint,
  runs bigint NOT NULL DEFAULT 0,
  missed bigint NOT NULL DEFAULT 0,
  next_slot bigint,
  wake_at bigint DEFAULT 0,
  created_at bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  failures text NOT NULL DEFAULT '[]',
  disabled_at bigint,
  trial_slot bigint
);

CREATE INDEX schedules_state ON schedules (state);
CREATE INDEX schedules_wake ON schedules (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX schedules_ended ON schedules (cursor) WHERE state = 'ended' AND origin = 'sql';

CREATE TABLE occurrences (
  id text COLLATE "C" PRIMARY KEY,
  schedule text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  slot bigint,
  last_slot bigint,
  queue text NOT NULL,
  state smallint NOT NULL,
  reason text,
  attempt bigint NOT NULL DEFAULT 0,
  queued_at bigint NOT NULL,
  started_at bigint,
  ended_at bigint,
  error text,
  missed bigint NOT NULL DEFAULT 0,
  watched smallint NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX occurrences_slot ON occurrences (schedule, slot) WHERE slot IS NOT NULL;
CREATE INDEX occurrences_completed ON occurrences (schedule, slot)
  WHERE state = 2 AND slot IS NOT NULL;
CREATE INDEX occurrences_of_schedule ON occurrences (schedule, id);
CREATE INDEX occurrences_open ON occurrences (schedule) WHERE ended_at IS NULL;
CREATE INDEX occurrences_not_completed ON occurrences (state, id)
  WHERE ended_at IS NOT NULL AND state <> 2;
CREATE INDEX occurrences_watched ON occurrences (ended_at)
  WHERE watched = 1 AND ended_at IS NOT NULL;

CREATE TABLE occurrence_events (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  occurrence text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  from_state smallint,
  to_state smallint NOT NULL,
  attempt bigint NOT NULL,
  note text
);

CREATE INDEX occurrence_events_of ON occurrence_events (occurrence, id);

CREATE TABLE ledger (
  id smallint PRIMARY KEY CHECK (id = 1),
  version integer NOT NULL,
  ahead bigint NOT NULL DEFAULT 0,
  seen_at bigint NOT NULL DEFAULT 0,
  hold text
);

INSERT INTO ledger (id, version) VALUES (1, 1);
