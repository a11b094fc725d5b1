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
        @connection.take(frame) { work(Task.new(@decoder.decode(frame), @connection, @flight)) }
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
      @connection.end_with(error)
    ensure
      @connection.end_child(error) if @connection.child?
      # It was left by `break`, `throw` or `Thread.exit`, which go on from here.
      answer ||= left_unanswered(task)
      @task = nil
      @flight.end(task)
      @connection.answer(task, answer)
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

      @connection.outcome(task, outcome)
    end

    def left_unanswered(task)
      error = RuntimeError.new("the handler was left without an outcome: use next, not break or throw")
      @connection.end_with(error)
      failure(error, task)
    end

    # 500, or 429 for what was cancelled, with the error in its first line and the stack below.
    def failure(error, task)
      status = error.is_a?(Cancelled) ? Status::RETRY : Status::UNKNOWN_ERROR
      @connection.outcome(task, Outcome.new(status, reason_of(error)))
    end

    def reason_of(error)
      outgoing = @connection.outgoing
      first = error.is_a?(Cancelled) ? "cancelled" : outgoing.readable(error)[0, STACK_CHARS_MAX]
      stack = outgoing.readable(error.full_message(highlight: false, order: :top))
      stack = "…#{stack[-STACK_CHARS_MAX..]}" if stack.length > STACK_CHARS_MAX
      "#{first}\n#{stack}"
    rescue StandardError => worse # an exception whose text raises one
      "#{error.class}, whose text raises #{worse.class}"
    end
  end
end
