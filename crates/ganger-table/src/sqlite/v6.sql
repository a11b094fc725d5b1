-- Version 6: the database numbers all messages. After the greatest number there is no next one, so who gave that
-- to a message would be the last to send.

CREATE TRIGGER consumer_messages_id BEFORE INSERT ON consumer_messages
WHEN NEW.id > 0 AND NEW.id > coalesce(
  (SELECT seq FROM sqlite_sequence WHERE name = 'consumer_messages'), 0)
BEGIN
  SELECT RAISE(ABORT, 'id must be left out: the database numbers messages');
END;
