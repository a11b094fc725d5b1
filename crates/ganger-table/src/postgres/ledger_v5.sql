-- Ledger, version 5: the runs of a schedule that have ended in a state which few do, of which a list is short.

CREATE INDEX occurrences_of_schedule_not_completed ON occurrences (schedule, state, id)
  WHERE ended_at IS NOT NULL AND state <> 2;

UPDATE ledger SET version = 5;
