-- Version 2: what is finished, where a pool remembers that.

CREATE TABLE finished_messages (
  source text NOT NULL,
  queue text NOT NULL,
  key text NOT NULL,
  emit_id text NOT NULL,
  step bigint NOT NULL,
  finished_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  reply_queue text,
  reply_body text,
  reply_body_bytes bytea,
  reply_headers text,
  PRIMARY KEY (source, queue, key, emit_id, step)
) WITH (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 50000
);

CREATE INDEX finished_messages_expired ON finished_messages (expires_at);

UPDATE ganger_version SET version = 2;
