-- Ledger, version 2: what is expected of schedules, their versions, and who changed what; results, logs, progress
-- and cancellation of runs; recorded messages; messages of schedules on their way to other sources.

-- Not again where this step was interrupted, or is run by hand: there is no ADD COLUMN IF NOT EXISTS in MySQL.
SET @ganger_step = (
  SELECT IF(COUNT(*) > 0, 'DO 0',
    'ALTER TABLE schedules
      ADD COLUMN expected_since BIGINT,
      ADD COLUMN review_at BIGINT,
      ADD COLUMN overdue TEXT,
      ADD COLUMN skips TEXT,
      ADD KEY schedules_configuration (configuration),
      ADD KEY schedules_review (review_at),
      ADD KEY schedules_overdue (overdue(8))')
  FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'schedules' AND column_name = 'skips');
PREPARE ganger_step FROM @ganger_step;
EXECUTE ganger_step;
DEALLOCATE PREPARE ganger_step;

SET @ganger_step = (
  SELECT IF(COUNT(*) > 0, 'DO 0',
    'ALTER TABLE occurrences
      ADD COLUMN result LONGTEXT,
      ADD COLUMN source VARCHAR(64),
      ADD COLUMN message_id VARCHAR(255),
      ADD COLUMN progress TEXT,
      ADD COLUMN heard_at BIGINT,
      ADD COLUMN log_lines BIGINT NOT NULL DEFAULT 0,
      ADD COLUMN log_bytes BIGINT NOT NULL DEFAULT 0,
      ADD COLUMN log_dropped BIGINT NOT NULL DEFAULT 0,
      ADD COLUMN cancel_request VARCHAR(512),
      ADD COLUMN resolved TEXT,
      ADD KEY occurrences_message_id (message_id),
      ADD KEY occurrences_cancel (ended_at, cancel_request(8))')
  FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'occurrences' AND column_name = 'resolved');
PREPARE ganger_step FROM @ganger_step;
EXECUTE ganger_step;
DEALLOCATE PREPARE ganger_step;

CREATE TABLE IF NOT EXISTS schedule_outbox (
  occurrence VARCHAR(64) NOT NULL PRIMARY KEY,
  source VARCHAR(64) NOT NULL,
  message LONGTEXT NOT NULL,
  held_until BIGINT NOT NULL DEFAULT 0,
  KEY schedule_outbox_due (source, held_until, occurrence)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS occurrence_logs (
  occurrence VARCHAR(64) NOT NULL,
  line BIGINT NOT NULL,
  `at` BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  stream VARCHAR(16) NOT NULL,
  level VARCHAR(16),
  `text` LONGTEXT NOT NULL,
  PRIMARY KEY (occurrence, line)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS schedule_versions (
  schedule VARCHAR(64) NOT NULL,
  version BIGINT NOT NULL,
  `at` BIGINT NOT NULL,
  origin VARCHAR(8) NOT NULL,
  actor VARCHAR(255),
  definition LONGTEXT NOT NULL,
  PRIMARY KEY (schedule, version)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS ledger_audit (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  `at` BIGINT NOT NULL,
  actor VARCHAR(255),
  action VARCHAR(64) NOT NULL,
  subject VARCHAR(255) NOT NULL,
  detail LONGTEXT,
  KEY ledger_audit_subject (subject, id),
  KEY ledger_audit_at (`at`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

UPDATE ledger SET version = 2;
