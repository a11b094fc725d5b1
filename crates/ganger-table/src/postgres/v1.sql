-- Version 1 of the tables on PostgreSQL 12 or later.

CREATE TABLE consumer_messages (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text NOT NULL,
  body text,
  body_bytes bytea,
  headers json NOT NULL DEFAULT '{}',
  correlation_id text,
  reply_to text,
  message_id text,
  content_type text,
  key text,
  priority integer NOT NULL DEFAULT 0,
  available_after bigint NOT NULL DEFAULT 0 CHECK (available_after >= 0),
  attempts bigint NOT NULL DEFAULT 0,
  crashes bigint NOT NULL DEFAULT 0,
  lapses bigint NOT NULL DEFAULT 0,
  suspicion bigint GENERATED ALWAYS AS (CASE WHEN lapses < 2 THEN 0 ELSE lapses - 1 END) STORED,
  requeues bigint NOT NULL DEFAULT 0,
  suspect smallint NOT NULL DEFAULT 0,
  first_failed_at bigint,
  last_error text,
  created_at bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  span text,
  owner bigint,
  claim bigint,
  unique_key text,
  unique_scope text CHECK (unique_scope IN ('waiting', 'waiting_or_running', 'until')),
  unique_until bigint,
  unique_released smallint NOT NULL DEFAULT 0,
  unique_hold text GENERATED ALWAYS AS (CASE WHEN unique_released = 0 THEN unique_key END) STORED,
  CHECK ((body IS NULL) <> (body_bytes IS NULL)),
  CHECK ((unique_until IS NOT NULL) = (unique_scope IS NOT DISTINCT FROM 'until'))
) WITH (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 50000,
  toast.autovacuum_vacuum_scale_factor = 0,
  toast.autovacuum_vacuum_threshold = 5000
);

CREATE INDEX consumer_messages_ready ON consumer_messages (queue, suspicion, priority DESC, id)
  WHERE owner IS NULL AND available_after = 0;
CREATE INDEX consumer_messages_delayed ON consumer_messages (queue, available_after)
  WHERE owner IS NULL AND available_after > 0;
CREATE INDEX consumer_messages_claimed ON consumer_messages (owner)
  WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX consumer_messages_unique ON consumer_messages (queue, unique_hold)
  WHERE unique_hold IS NOT NULL;
CREATE INDEX consumer_messages_until ON consumer_messages (unique_until)
  WHERE unique_until IS NOT NULL AND unique_released = 0;

CREATE TABLE poisoned_messages (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pool text NOT NULL,
  queue text NOT NULL,
  reason text NOT NULL,
  error text NOT NULL,
  attempts bigint NOT NULL,
  crashes bigint NOT NULL,
  lapses bigint NOT NULL,
  exit_code integer,
  signal integer,
  oom smallint NOT NULL,
  stderr json NOT NULL,
  first_failed_at bigint NOT NULL,
  last_failed_at bigint NOT NULL,
  body text,
  body_bytes bytea,
  headers json NOT NULL,
  correlation_id text,
  reply_to text,
  message_id text,
  content_type text,
  key text,
  priority integer NOT NULL,
  created_at bigint NOT NULL,
  unique_key text,
  unique_scope text,
  unique_until bigint,
  reply_queue text,
  reply_body text,
  reply_body_bytes bytea,
  reply_headers json,
  CHECK ((body IS NULL) <> (body_bytes IS NULL))
);

CREATE TABLE owners (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  host text NOT NULL,
  pid integer NOT NULL,
  pool text NOT NULL,
  started_at bigint NOT NULL,
  lease_ms bigint NOT NULL,
  heartbeat bigint NOT NULL DEFAULT 0,
  beaten_at bigint NOT NULL,
  lock_key bigint NOT NULL UNIQUE
) WITH (fillfactor = 50);

CREATE FUNCTION ganger_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_notify(
    'ganger.' || pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
      pg_catalog.convert_to(TG_TABLE_SCHEMA || '.' || queue, 'UTF8')), 'hex'), 40), '')
  FROM (SELECT DISTINCT queue FROM inserted WHERE available_after = 0) AS queues;
  RETURN NULL;
END $$;

CREATE TRIGGER ganger_wake AFTER INSERT ON consumer_messages
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION ganger_wake();

CREATE TABLE ganger_version (version integer NOT NULL);
INSERT INTO ganger_version VALUES (1);
