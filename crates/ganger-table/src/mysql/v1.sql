-- Version 1 of the tables on MySQL 8.0.13 or MariaDB 10.6, or later. Each statement can be run again: what
-- was made stays made, for here no transaction takes it back.
--
-- MySQL before 8.0.16 reads a CHECK and forgets it, so a column that must not be null but is of what is
-- wrong stands for it there. It does not see yet what is a default by an expression: then headers are
-- empty. MariaDB takes what only MySQL is to read for a comment.

CREATE TABLE IF NOT EXISTS consumer_messages (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue VARCHAR(255) NOT NULL,
  body LONGBLOB NOT NULL,
  headers LONGTEXT NOT NULL DEFAULT ('{}'),
  correlation_id TEXT,
  reply_to TEXT,
  message_id TEXT,
  content_type TEXT,
  `key` TEXT,
  priority INT NOT NULL DEFAULT 0,
  available_after BIGINT NOT NULL DEFAULT 0,
  attempts BIGINT NOT NULL DEFAULT 0,
  crashes BIGINT NOT NULL DEFAULT 0,
  lapses BIGINT NOT NULL DEFAULT 0,
  suspicion BIGINT GENERATED ALWAYS AS (CASE WHEN lapses < 2 THEN 0 ELSE lapses - 1 END) STORED,
  turn BIGINT GENERATED ALWAYS AS (-priority) STORED,
  requeues BIGINT NOT NULL DEFAULT 0,
  suspect SMALLINT NOT NULL DEFAULT 0,
  first_failed_at BIGINT,
  last_error MEDIUMTEXT,
  created_at BIGINT NOT NULL
    DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000),
  span TEXT,
  owner BIGINT,
  claim BIGINT,
  unique_key VARCHAR(255),
  unique_scope VARCHAR(255),
  unique_until BIGINT,
  unique_released SMALLINT NOT NULL DEFAULT 0,
  unique_hold VARBINARY(1020)
    GENERATED ALWAYS AS (CASE WHEN unique_released = 0 THEN unique_key END) STORED,
  KEY consumer_messages_ready (queue, owner, available_after, suspicion, turn),
  KEY consumer_messages_claimed (owner),
  UNIQUE KEY consumer_messages_unique (unique_hold, queue),
  KEY consumer_messages_until (unique_released, unique_until),
  CHECK (JSON_VALID(headers)),
  CHECK (available_after >= 0),
  CHECK (unique_scope IN ('waiting', 'waiting_or_running', 'until')),
  CHECK ((unique_until IS NOT NULL) = (unique_scope <=> 'until'))
  /*!50700 , meets_constraints TINYINT GENERATED ALWAYS AS (CASE
    WHEN (COALESCE(headers, '') = '' OR JSON_VALID(headers)) AND available_after >= 0
      AND COALESCE(unique_scope IN ('waiting', 'waiting_or_running', 'until'), 1)
      AND (unique_until IS NOT NULL) = (unique_scope <=> 'until') THEN 1 END) VIRTUAL NOT NULL */
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS poisoned_messages (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  pool VARCHAR(255) NOT NULL,
  queue VARCHAR(255) NOT NULL,
  reason VARCHAR(255) NOT NULL,
  error MEDIUMTEXT NOT NULL,
  attempts BIGINT NOT NULL,
  crashes BIGINT NOT NULL,
  lapses BIGINT NOT NULL,
  exit_code INT,
  `signal` INT,
  oom SMALLINT NOT NULL,
  stderr MEDIUMTEXT NOT NULL,
  first_failed_at BIGINT NOT NULL,
  last_failed_at BIGINT NOT NULL,
  body LONGBLOB NOT NULL,
  headers LONGTEXT NOT NULL,
  correlation_id TEXT,
  reply_to TEXT,
  message_id TEXT,
  content_type TEXT,
  `key` TEXT,
  priority INT NOT NULL,
  created_at BIGINT NOT NULL,
  unique_key VARCHAR(255),
  unique_scope VARCHAR(255),
  unique_until BIGINT,
  reply_queue TEXT,
  reply_body LONGBLOB,
  reply_headers LONGTEXT
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS owners (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  host VARCHAR(255) NOT NULL,
  pid INT NOT NULL,
  pool VARCHAR(255) NOT NULL,
  started_at BIGINT NOT NULL,
  lease_ms BIGINT NOT NULL,
  heartbeat BIGINT NOT NULL DEFAULT 0,
  beaten_at BIGINT NOT NULL,
  lock_name VARCHAR(64) NOT NULL UNIQUE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS finished_messages (
  source VARCHAR(255) NOT NULL,
  queue VARCHAR(255) NOT NULL,
  `key` VARBINARY(255) NOT NULL,
  emit_id VARBINARY(255) NOT NULL,
  step BIGINT NOT NULL,
  finished_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  token BIGINT NOT NULL,
  reply_queue TEXT,
  reply_body LONGBLOB,
  reply_headers LONGTEXT,
  PRIMARY KEY (source, queue, `key`, emit_id, step),
  KEY finished_messages_expired (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS subscriptions (
  topic VARCHAR(255) NOT NULL,
  queue VARCHAR(255) NOT NULL,
  subscribed_at BIGINT NOT NULL
    DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000),
  PRIMARY KEY (topic, queue)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS ganger_version (
  version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO ganger_version VALUES (1);
