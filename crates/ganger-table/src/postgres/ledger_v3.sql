-- Ledger, version 3: the occurrences that ended first are found for each state.

CREATE INDEX occurrences_ended ON occurrences (state, ended_at, id) WHERE ended_at IS NOT NULL;

UPDATE ledger SET version = 3;
