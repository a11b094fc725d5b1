-- Messages for topics. The table gets its name only when it has its triggers: a row inserted before that would
-- not reach any queue.

DROP TABLE IF EXISTS published_messages_new;

CREATE TABLE published_messages_new (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  topic VARCHAR(255) NOT NULL,
  body LONGBLOB NOT NULL,
  headers LONGTEXT NOT NULL DEFAULT ('{}'),
  correlation_id TEXT,
  reply_to TEXT,
  message_id TEXT,
  content_type TEXT,
  `key` TEXT,
  priority INT NOT NULL DEFAULT 0,
  available_after BIGINT NOT NULL DEFAULT 0,
  unsubscribed VARCHAR(255) NOT NULL DEFAULT 'fail',
  fanned_out TINYINT NOT NULL DEFAULT 0,
  KEY published_messages_fanned_out (fanned_out),
  CHECK (JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'),
  CHECK (available_after >= 0),
  CHECK (unsubscribed IN ('fail', 'drop'))
  /*!50700 , meets_constraints TINYINT GENERATED ALWAYS AS (CASE
    WHEN CASE WHEN JSON_VALID(headers) THEN JSON_TYPE(headers) = 'OBJECT' ELSE COALESCE(headers, '') = ''
      END AND available_after >= 0 AND unsubscribed IN ('fail', 'drop') THEN 1 END) VIRTUAL NOT NULL */
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A trigger may not delete from its own table, so the daemons remove the rows that were copied to the queues.
CREATE TRIGGER published_messages_fan_out AFTER INSERT ON published_messages_new FOR EACH ROW
BEGIN
  DECLARE why VARCHAR(128) CHARACTER SET utf8mb4;
  IF NEW.unsubscribed = 'fail' AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE topic = NEW.topic) THEN
    SET why = LEFT(CONCAT('no queue is subscribed to the topic of this message: ', NEW.topic), 128);
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = why;
  END IF;
  INSERT INTO consumer_messages (queue, body, headers, correlation_id, reply_to, message_id,
    content_type, `key`, priority, available_after)
  SELECT queue, NEW.body,
    CASE
      WHEN JSON_CONTAINS_PATH(NEW.headers, 'one', '$.topic') THEN NEW.headers
      WHEN JSON_LENGTH(NEW.headers) = 0 THEN CONCAT('{"topic":', JSON_QUOTE(NEW.topic), '}')
      ELSE CONCAT('{"topic":', JSON_QUOTE(NEW.topic), ',',
        SUBSTRING(NEW.headers, LOCATE('{', NEW.headers) + 1))
    END,
    NEW.correlation_id, NEW.reply_to, NEW.message_id, NEW.content_type, NEW.`key`, NEW.priority,
    NEW.available_after
  FROM subscriptions WHERE topic = NEW.topic ORDER BY queue;
END;

-- Only rows with this mark are removed: a table that was restored without its triggers keeps inserted rows.
CREATE TRIGGER published_messages_mark BEFORE INSERT ON published_messages_new FOR EACH ROW
SET NEW.fanned_out = 1, NEW.id = 0;

-- The rows in the table of an earlier version have been copied to the queues. Where there is no such table, a
-- placeholder that accepts no messages is created, so that both tables can be renamed at once.
CREATE TABLE IF NOT EXISTS published_messages (unsubscribed TINYINT) ENGINE = InnoDB;

DROP TABLE IF EXISTS published_messages_old;

RENAME TABLE published_messages TO published_messages_old, published_messages_new TO published_messages;

DROP TABLE published_messages_old;
