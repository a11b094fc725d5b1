-- Version 9: the worker and the trace of each occurrence; those that ended first are found for each state.

ALTER TABLE occurrences ADD COLUMN worker TEXT;
ALTER TABLE occurrences ADD COLUMN trace_id TEXT;

CREATE INDEX occurrences_ended ON occurrences (state, ended_at, id) WHERE ended_at IS NOT NULL;
