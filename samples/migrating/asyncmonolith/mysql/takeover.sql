-- Takes over what AsyncMonolith has in its tables, in one transaction: run it in their database while the
-- applications that have its processors are stopped. ganger's tables are there as well, behind the prefix
-- `ganger_`, made before this.
SET SESSION sql_mode = 'STRICT_ALL_TABLES', autocommit = 0;
LOCK TABLES consumer_messages WRITE, poisoned_messages WRITE,
  ganger_consumer_messages WRITE, ganger_poisoned_messages WRITE;

-- A queue for each consumer. Its times are seconds, ganger's are milliseconds.
INSERT INTO ganger_consumer_messages
  (queue, body, headers, message_id, content_type, attempts, available_after, created_at,
   unique_key, unique_scope)
SELECT consumer_type, CONVERT(payload USING utf8mb4),
  JSON_MERGE_PATCH('{}', JSON_OBJECT(
    'payload_type', payload_type,
    'traceparent', CONCAT('00-', NULLIF(trace_id, ''), '-', NULLIF(span_id, ''), '-01'))),
  id, 'application/json', attempts,
  CASE WHEN available_after > UNIX_TIMESTAMP() THEN available_after * 1000 ELSE 0 END,
  created_at * 1000, insert_id, 'waiting_or_running'
FROM consumer_messages
-- What the bridge has left behind was sent already.
WHERE available_after < 9223372036854775807
ORDER BY created_at, id
-- What was sent meanwhile with the same insert_id will do: that is what it is for.
ON DUPLICATE KEY UPDATE unique_key = VALUES(unique_key);

-- Removed is what was taken: -1 says that it was not, to a client that goes on after an error.
SET @taken = ROW_COUNT();
DELETE FROM consumer_messages WHERE @taken >= 0;

INSERT INTO ganger_poisoned_messages
  (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr, first_failed_at, last_failed_at,
   body, headers, message_id, content_type, priority, created_at)
SELECT consumer_type, consumer_type, 'failed', 'it had failed under AsyncMonolith', attempts, 0, 0, 0,
  '[]', created_at * 1000, available_after * 1000, CONVERT(payload USING utf8mb4),
  JSON_MERGE_PATCH('{}', JSON_OBJECT(
    'payload_type', payload_type,
    'traceparent', CONCAT('00-', NULLIF(trace_id, ''), '-', NULLIF(span_id, ''), '-01'))),
  id, 'application/json', 0, created_at * 1000
FROM poisoned_messages
ORDER BY created_at, id;

SET @taken = ROW_COUNT();
DELETE FROM poisoned_messages WHERE @taken >= 0;

COMMIT;
UNLOCK TABLES;
SET autocommit = 1;
