# frozen_string_literal: true

module Ganger
  # One thread at work: it takes a message, has the handler work on it and answers, time after time.
  class Hand # :nodoc:
    STACK_CHARS_MAX = 8000 # a dead letter keeps no more either
    TIMER_SECONDS_MAX = 1e9
    private_constant :STACK_CHARS_MAX, :TIMER_SECONDS_MAX

    # What is worked on now, or nil.
    attr_reader :task

    def initialize(handler, connection, flight)
      @handler = handler
      @connection = connection
      @flight = flight
      @decoder = Wire::Decoder.new
    end

    # Until there are no more messages.
    def work_off
      Thread.current.thread_variable_set(:ganger_hand, self)
      while (frame = @connection.next_frame)
        work(Task.new(@decoder.decode(frame), @connection, @flight))
      end
    rescue ProtocolError => error
      @connection.fail_with(error)
    ensure
      Thread.current.thread_variable_set(:ganger_hand, nil)
    end

    private

    def work(task)
      @flight.begin(@task = task)
      outcome = task.headers.empty? ? @handler.call(task) : call_with_headers(task)
      answer = answer_to(outcome, task)
    rescue StandardError, ScriptError, SystemStackError, Cancelled => error
      answer = failure(error, task)
    rescue Exception => error # such as SystemExit: answered, and the end
      answer = failure(error, task)
      @connection.fail_with(error)
    ensure
      # It was left by `break`, `throw` or `Thread.exit`, which go on from here.
      answer ||= left_unanswered(task)
      @task = nil
      @flight.end(task)
      @connection.write(answer)
    end

    # Version 1 asks a worker to give up by itself; version 2 is told when it is so far.
    def call_with_headers(task)
      timer = timer(task) if @connection.version == 1
      Tracing.within(task.headers) { @handler.call(task) }
    ensure
      timer&.kill
    end

    def timer(task)
      after = Integer(task.headers.fetch("TimeoutMilliseconds", ""), 10, exception: false)
      return if after.nil? || after.negative?

      Thread.new do
        sleep([after / 1000.0, TIMER_SECONDS_MAX].min)
        @flight.cancel_task(task)
      end
    end

    def answer_to(outcome, task)
      return @connection.done(task) if outcome.nil? || outcome.equal?(DONE)
      unless outcome.is_a?(Outcome)
        raise TypeError, "a handler must return an Outcome, such as Ganger.done or Ganger.reply(…), " \
                         "or nil: #{outcome.inspect[0, 80]}"
      end

      @connection.frame(task, outcome.message, outcome.status,
                        headers: outcome.headers, queue: outcome.queue, after_ms: outcome.after_ms)
    end

    def left_unanswered(task)
      error = RuntimeError.new("the handler was left without an outcome: use next, not break or throw")
      @connection.fail_with(error)
      failure(error, task)
    end

    # 500, with the error in its first line and the stack below.
    def failure(error, task)
      return @connection.frame(task, "cancelled", Status::RETRY) if error.is_a?(Cancelled)

      @connection.frame(task, reason_of(error), Status::UNKNOWN_ERROR)
    end

    def reason_of(error)
      first = readable("#{error.class}: #{error.message}")[0, STACK_CHARS_MAX]
      stack = readable(error.full_message(highlight: false, order: :top))
      stack = "…#{stack[-STACK_CHARS_MAX..]}" if stack.length > STACK_CHARS_MAX
      "#{first}\n#{stack}"
    rescue StandardError => worse # an exception whose text raises one
      "#{error.class}, whose text raises #{worse.class}"
    end

    # Ruby puts a text together of parts in several encodings.
    def readable(text)
      text = text.dup.force_encoding(Encoding::UTF_8) unless text.encoding == Encoding::UTF_8
      text.scrub("?")
    end
  end
end
