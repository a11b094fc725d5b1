-- Version 10: the fingerprint of each error and the exit of its worker, and the correlation ids of recorded messages.

ALTER TABLE occurrences ADD COLUMN fingerprint TEXT;
ALTER TABLE occurrences ADD COLUMN exit_code INTEGER;
ALTER TABLE occurrences ADD COLUMN signal INTEGER;
ALTER TABLE occurrences ADD COLUMN correlation_id TEXT;

CREATE INDEX occurrences_fingerprint ON occurrences (fingerprint, id) WHERE fingerprint IS NOT NULL;
CREATE INDEX occurrences_correlation_id ON occurrences (correlation_id, id) WHERE correlation_id IS NOT NULL;
