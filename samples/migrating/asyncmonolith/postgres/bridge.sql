-- From here on, what an application sends through AsyncMonolith goes to ganger, in the transaction that
-- sends it: `IProducerService` and `IScheduleService` stay as they are.
CREATE FUNCTION ganger.from_asyncmonolith() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ganger.consumer_messages
    (queue, body, headers, message_id, content_type, available_after, unique_key, unique_scope)
  VALUES (NEW.consumer_type, NEW.payload,
    json_strip_nulls(json_build_object(
      'payload_type', NEW.payload_type,
      'traceparent', '00-' || nullif(NEW.trace_id, '') || '-' || nullif(NEW.span_id, '') || '-01')),
    NEW.id, 'application/json',
    CASE WHEN NEW.available_after > extract(epoch FROM now()) THEN NEW.available_after * 1000 ELSE 0 END,
    NEW.insert_id, 'waiting_or_running')
  ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING;
  DELETE FROM public.consumer_messages WHERE id = NEW.id;
  RETURN NULL;
END $$;

-- After, not before: Entity Framework takes a row that was not inserted for somebody else's change.
CREATE TRIGGER ganger AFTER INSERT ON public.consumer_messages
  FOR EACH ROW EXECUTE FUNCTION ganger.from_asyncmonolith();
