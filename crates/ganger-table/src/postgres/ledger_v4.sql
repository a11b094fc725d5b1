-- Ledger, version 4: the fingerprint of each error and the exit of its worker, and the correlation ids of recorded
-- messages.

ALTER TABLE occurrences
  ADD COLUMN fingerprint text,
  ADD COLUMN exit_code bigint,
  ADD COLUMN signal bigint,
  ADD COLUMN correlation_id text;

CREATE INDEX occurrences_fingerprint ON occurrences (fingerprint, id) WHERE fingerprint IS NOT NULL;
CREATE INDEX occurrences_correlation_id ON occurrences (correlation_id, id) WHERE correlation_id IS NOT NULL;

UPDATE ledger SET version = 4;
