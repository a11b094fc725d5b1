-- A message for each queue that is subscribed to its topic. The tables are made with the first
-- subscription, whatever the version of the others: whoever has none may have tables of these names.

CREATE TABLE subscriptions (
  topic TEXT NOT NULL,
  queue TEXT NOT NULL,
  subscribed_at INTEGER NOT NULL
    DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  PRIMARY KEY (topic, queue)
) STRICT, WITHOUT ROWID;

CREATE TABLE published_messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  topic TEXT NOT NULL,
  body ANY NOT NULL,
  headers TEXT NOT NULL DEFAULT '{}' CHECK (json_type(headers) = 'object'),
  correlation_id TEXT,
  reply_to TEXT,
  message_id TEXT,
  content_type TEXT,
  key TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  available_after INTEGER NOT NULL DEFAULT 0 CHECK (available_after >= 0),
  unsubscribed TEXT NOT NULL DEFAULT 'fail' CHECK (unsubscribed IN ('fail', 'drop'))
) STRICT;

CREATE TRIGGER published_messages_id BEFORE INSERT ON published_messages
WHEN NEW.id > 0 AND NEW.id > coalesce(
  (SELECT seq FROM sqlite_sequence WHERE name = 'published_messages'), 0)
BEGIN
  SELECT RAISE(ABORT, 'id must be left out: the database numbers messages');
END;

CREATE TRIGGER published_messages_fan_out AFTER INSERT ON published_messages
BEGIN
  SELECT RAISE(ABORT, 'no queue is subscribed to the topic of this message')
  WHERE NEW.unsubscribed = 'fail'
    AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE topic = NEW.topic);
  INSERT INTO consumer_messages (queue, body, headers, correlation_id, reply_to, message_id,
    content_type, key, priority, available_after)
  SELECT queue, NEW.body, json_insert(NEW.headers, '$.topic', NEW.topic), NEW.correlation_id,
    NEW.reply_to, NEW.message_id, NEW.content_type, NEW.key, NEW.priority, NEW.available_after
  FROM subscriptions WHERE topic = NEW.topic;
  DELETE FROM published_messages WHERE id = NEW.id;
END;
