-- Version 4: whoever sends tells of it only while someone sleeps who waits for that. Commits that notify go
-- through one at a time, each until it is on the disk.

-- A daemon that sleeps has the lock of its queue for itself; who sends shares it until the end of the
-- transaction, and nobody waits for it. So a daemon that gets it knows that all that was sent without being
-- told of is committed, and finds it.
CREATE OR REPLACE FUNCTION ganger_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_notify(
    'ganger.' || pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
      pg_catalog.convert_to(TG_TABLE_SCHEMA || '.' || queue, 'UTF8')), 'hex'), 40), '')
  FROM (SELECT DISTINCT queue FROM inserted WHERE available_after = 0) AS queues
  WHERE NOT pg_catalog.pg_try_advisory_xact_lock_shared(
    1734438503, pg_catalog.hashtext(TG_TABLE_SCHEMA || '.' || queue) & 1023);
  RETURN NULL;
END $$;

UPDATE ganger_version SET version = 4;
