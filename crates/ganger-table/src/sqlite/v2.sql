-- Version 2 of the tables: suspects are told from the rest by the index.

ALTER TABLE consumer_messages ADD COLUMN
  suspicion INTEGER AS (CASE WHEN lapses < 2 THEN 0 ELSE lapses - 1 END) VIRTUAL;

DROP INDEX consumer_messages_ready;
CREATE INDEX consumer_messages_ready ON consumer_messages (queue, suspicion, priority DESC, id)
  WHERE owner IS NULL AND available_after = 0;
