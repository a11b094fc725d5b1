-- Ledger, version 1: schedules, and the occurrences of their slots.

CREATE TABLE IF NOT EXISTS schedules (
  name VARCHAR(64) NOT NULL PRIMARY KEY,
  definition LONGTEXT NOT NULL,
  origin VARCHAR(8) NOT NULL DEFAULT 'sql',
  configuration VARCHAR(255),
  state VARCHAR(16) NOT NULL DEFAULT 'active',
  state_reason TEXT,
  version BIGINT NOT NULL DEFAULT 0,
  applied LONGTEXT,
  `cursor` BIGINT,
  runs BIGINT NOT NULL DEFAULT 0,
  missed BIGINT NOT NULL DEFAULT 0,
  next_slot BIGINT,
  wake_at BIGINT DEFAULT 0,
  created_at BIGINT NOT NULL
    DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000),
  failures TEXT NOT NULL DEFAULT ('[]'),
  disabled_at BIGINT,
  trial_slot BIGINT,
  KEY schedules_state (state),
  KEY schedules_wake (wake_at),
  KEY schedules_ended (state, origin, `cursor`),
  CHECK (name REGEXP '^[A-Za-z0-9_.-]+$'),
  CHECK (origin IN ('file', 'api', 'sql')),
  CHECK ((configuration IS NOT NULL) = (origin = 'file')),
  CHECK (state IN ('active', 'paused', 'disabled', 'broken', 'ended'))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS occurrences (
  id VARCHAR(64) NOT NULL PRIMARY KEY,
  schedule VARCHAR(64) NOT NULL,
  version BIGINT NOT NULL,
  slot BIGINT,
  last_slot BIGINT,
  queue VARCHAR(255) NOT NULL,
  state SMALLINT NOT NULL,
  reason VARCHAR(64),
  attempt BIGINT NOT NULL DEFAULT 0,
  queued_at BIGINT NOT NULL,
  started_at BIGINT,
  ended_at BIGINT,
  error LONGTEXT,
  missed BIGINT NOT NULL DEFAULT 0,
  watched TINYINT NOT NULL DEFAULT 0,
  UNIQUE KEY occurrences_slot (schedule, slot),
  KEY occurrences_completed (schedule, state, slot),
  KEY occurrences_of_schedule (schedule, id),
  KEY occurrences_open (ended_at, schedule),
  KEY occurrences_not_completed (state, id),
  KEY occurrences_watched (watched, ended_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS occurrence_events (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  occurrence VARCHAR(64) NOT NULL,
  `at` BIGINT NOT NULL,
  from_state SMALLINT,
  to_state SMALLINT NOT NULL,
  attempt BIGINT NOT NULL,
  note LONGTEXT,
  KEY occurrence_events_of (occurrence, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS ledger (
  id TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,
  ahead BIGINT NOT NULL DEFAULT 0,
  seen_at BIGINT NOT NULL DEFAULT 0,
  hold TEXT,
  CHECK (id = 1)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Last: the row shows that all of it is there.
INSERT IGNORE INTO ledger (id, version) VALUES (1, 1);
