-- Ledger, version 3: the worker and the trace of each occurrence; those that ended first are found for each state.

-- Not again where this step was interrupted, or is run by hand.
SET @ganger_step = (
  SELECT IF(COUNT(*) > 0, 'DO 0',
    'ALTER TABLE occurrences
      ADD COLUMN worker TEXT,
      ADD COLUMN trace_id VARCHAR(32),
      ADD KEY occurrences_ended (state, ended_at, id)')
  FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'occurrences' AND index_name = 'occurrences_ended');
PREPARE ganger_step FROM @ganger_step;
EXECUTE ganger_step;
DEALLOCATE PREPARE ganger_step;

UPDATE ledger SET version = 3;
