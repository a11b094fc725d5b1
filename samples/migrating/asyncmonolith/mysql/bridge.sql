-- From here on, what an application sends through AsyncMonolith goes to ganger, in the transaction that
-- sends it: `IProducerService` and `IScheduleService` stay as they are. No trigger may delete from its own
-- table here, so its row stays behind, empty: it never falls due, and is in the way of no insert_id.
DELIMITER //

-- Removes them, without holding up who inserts.
CREATE EVENT IF NOT EXISTS ganger_sweep ON SCHEDULE EVERY 5 SECOND DO
BEGIN
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  DELETE FROM consumer_messages WHERE available_after = 9223372036854775807;
END //

CREATE TRIGGER ganger_bridge BEFORE INSERT ON consumer_messages FOR EACH ROW
BEGIN
  INSERT INTO ganger_consumer_messages
    (queue, body, headers, message_id, content_type, available_after, unique_key, unique_scope)
  VALUES (NEW.consumer_type, CONVERT(NEW.payload USING utf8mb4),
    JSON_MERGE_PATCH('{}', JSON_OBJECT(
      'payload_type', NEW.payload_type,
      'traceparent', CONCAT('00-', NULLIF(NEW.trace_id, ''), '-', NULLIF(NEW.span_id, ''), '-01'))),
    NEW.id, 'application/json',
    CASE WHEN NEW.available_after > UNIX_TIMESTAMP() THEN NEW.available_after * 1000 ELSE 0 END,
    NEW.insert_id, 'waiting_or_running')
  ON DUPLICATE KEY UPDATE unique_key = VALUES(unique_key);
  SET NEW.payload = '', NEW.insert_id = NEW.id, NEW.available_after = 9223372036854775807;
END //

DELIMITER ;
