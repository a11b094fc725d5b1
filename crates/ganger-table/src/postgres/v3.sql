-- Version 3: a message for each queue that is subscribed to its topic.

CREATE TABLE subscriptions (
  topic text NOT NULL,
  queue text NOT NULL,
  subscribed_at bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  PRIMARY KEY (topic, queue)
);

CREATE TABLE published_messages (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic text NOT NULL,
  body text,
  body_bytes bytea,
  headers json NOT NULL DEFAULT '{}' CHECK (json_typeof(headers) = 'object'),
  correlation_id text,
  reply_to text,
  message_id text,
  content_type text,
  key text,
  priority integer NOT NULL DEFAULT 0,
  available_after bigint NOT NULL DEFAULT 0 CHECK (available_after >= 0),
  unsubscribed text NOT NULL DEFAULT 'fail' CHECK (unsubscribed IN ('fail', 'drop')),
  CHECK ((body IS NULL) <> (body_bytes IS NULL))
) WITH (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0,
  toast.autovacuum_vacuum_scale_factor = 0,
  toast.autovacuum_vacuum_threshold = 5000
);

-- Whatever path the sender has, the tables are those of this schema.
CREATE FUNCTION ganger_fan_out() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  nobodys text;
BEGIN
  SELECT topic INTO nobodys FROM inserted
  WHERE unsubscribed = 'fail' AND topic NOT IN (SELECT topic FROM subscriptions) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'no queue is subscribed to the topic of this message: %', nobodys;
  END IF;
  INSERT INTO consumer_messages (queue, body, body_bytes, headers, correlation_id, reply_to,
    message_id, content_type, key, priority, available_after)
  SELECT s.queue, i.body, i.body_bytes,
    CASE
      WHEN i.headers -> 'topic' IS NOT NULL THEN i.headers
      WHEN NOT EXISTS (SELECT FROM json_object_keys(i.headers)) THEN json_build_object('topic', i.topic)
      ELSE ('{"topic":' || to_json(i.topic)::text || ','
        || substr(ltrim(i.headers::text, E' \t\n\r'), 2))::json
    END,
    i.correlation_id, i.reply_to, i.message_id, i.content_type, i.key, i.priority, i.available_after
  FROM inserted i JOIN subscriptions s USING (topic) ORDER BY i.id, s.queue;
  DELETE FROM published_messages WHERE id IN (SELECT id FROM inserted);
  RETURN NULL;
END $$;

CREATE TRIGGER ganger_fan_out AFTER INSERT ON published_messages
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION ganger_fan_out();

UPDATE ganger_version SET version = 3;
