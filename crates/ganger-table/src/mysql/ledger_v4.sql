-- Ledger, version 4: the fingerprint of each error and the exit of its worker, and the correlation ids of recorded
-- messages.

-- Not again where this step was interrupted, or is run by hand.
SET @ganger_step = (
  SELECT IF(COUNT(*) > 0, 'DO 0',
    'ALTER TABLE occurrences
      ADD COLUMN fingerprint VARCHAR(16),
      ADD COLUMN exit_code BIGINT,
      ADD COLUMN `signal` BIGINT,
      ADD COLUMN correlation_id VARCHAR(255),
      ADD KEY occurrences_fingerprint (fingerprint, id),
      ADD KEY occurrences_correlation_id (correlation_id, id)')
  FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'occurrences' AND index_name = 'occurrences_fingerprint');
PREPARE ganger_step FROM @ganger_step;
EXECUTE ganger_step;
DEALLOCATE PREPARE ganger_step;

UPDATE ledger SET version = 4;
