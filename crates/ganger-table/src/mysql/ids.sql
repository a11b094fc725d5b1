-- The server numbers all messages. After the greatest number there is no next one, so who gave that to a message
-- would be the last to send.
CREATE TRIGGER consumer_messages_id BEFORE INSERT ON consumer_messages FOR EACH ROW SET NEW.id = 0;
