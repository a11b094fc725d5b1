-- The server assigns the ids of all messages. The greatest id has no successor: a sender that chose it for its
-- message would prevent all later ones.
CREATE TRIGGER consumer_messages_id BEFORE INSERT ON consumer_messages FOR EACH ROW SET NEW.id = 0;
