-- Ledger, version 5: the runs of a schedule by their state.

-- Not again where this step was interrupted, or is run by hand.
SET @ganger_step = (
  SELECT IF(COUNT(*) > 0, 'DO 0',
    'ALTER TABLE occurrences ADD KEY occurrences_of_schedule_not_completed (schedule, state, id)')
  FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'occurrences'
    AND index_name = 'occurrences_of_schedule_not_completed');
PREPARE ganger_step FROM @ganger_step;
EXECUTE ganger_step;
DEALLOCATE PREPARE ganger_step;

UPDATE ledger SET version = 5;
