-- Version 3: a dead letter says which row it was, and those of one pool are found.

-- Not again where this step was interrupted: there is no ADD COLUMN IF NOT EXISTS in MySQL.
SET @ganger_step = (
  SELECT IF(COUNT(*) > 0, 'DO 0',
    'ALTER TABLE poisoned_messages ADD COLUMN row_id BIGINT, ADD INDEX poisoned_messages_pool (pool)')
  FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'poisoned_messages' AND column_name = 'row_id');
PREPARE ganger_step FROM @ganger_step;
EXECUTE ganger_step;
DEALLOCATE PREPARE ganger_step;

INSERT IGNORE INTO ganger_version VALUES (3);
