-- Takes over what AsyncMonolith has in its tables, in one transaction: run it while the applications
-- that have its processors are stopped. ganger's tables are in the schema `ganger`, made before this.
BEGIN;
LOCK TABLE public.consumer_messages, public.poisoned_messages IN ACCESS EXCLUSIVE MODE;

-- A queue for each consumer. Its times are seconds, ganger's are milliseconds.
INSERT INTO ganger.consumer_messages
  (queue, body, headers, message_id, content_type, attempts, available_after, created_at,
   unique_key, unique_scope)
SELECT consumer_type, payload,
  json_strip_nulls(json_build_object(
    'payload_type', payload_type,
    'traceparent', '00-' || nullif(trace_id, '') || '-' || nullif(span_id, '') || '-01')),
  id, 'application/json', attempts,
  CASE WHEN available_after > extract(epoch FROM now()) THEN available_after * 1000 ELSE 0 END,
  created_at * 1000, insert_id, 'waiting_or_running'
FROM public.consumer_messages
ORDER BY created_at, id
-- What was sent meanwhile with the same insert_id will do: that is what it is for.
ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING;

INSERT INTO ganger.poisoned_messages
  (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr, first_failed_at, last_failed_at,
   body, headers, message_id, content_type, priority, created_at)
SELECT consumer_type, consumer_type, 'failed', 'it had failed under AsyncMonolith', attempts, 0, 0, 0,
  '[]', created_at * 1000, available_after * 1000, payload,
  json_strip_nulls(json_build_object(
    'payload_type', payload_type,
    'traceparent', '00-' || nullif(trace_id, '') || '-' || nullif(span_id, '') || '-01')),
  id, 'application/json', 0, created_at * 1000
FROM public.poisoned_messages
ORDER BY created_at, id;

DELETE FROM public.consumer_messages;
DELETE FROM public.poisoned_messages;
COMMIT;
