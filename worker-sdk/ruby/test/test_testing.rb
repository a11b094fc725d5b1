# frozen_string_literal: true

require "minitest/autorun"

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "ganger/testing"

# The harness, by which handlers are tested without a daemon, and what is seen best through it.
class TestTesting < Minitest::Test
  Testing = Ganger::Testing

  SHOUT = lambda do |task|
    task.emit("heard", task.text)
    task.progress("half way")
    task.log(:info, "shouting", volume: 11)
    Ganger.reply(task.text.upcase, headers: { loud: true }, queue: "answers")
  end

  def test_results_in_the_order_of_the_messages
    bodies = Array.new(500) { |n| "message #{n}" }
    last = [1, 16].map do |concurrency|
      results = Testing.work(bodies, SHOUT, concurrency:)
      assert_equal bodies.map(&:upcase), results.map(&:message)
      results.last
    end.last
    assert_equal [201, { "loud" => true }, "answers"], [last.status, last.headers, last.queue]
    assert_equal [Testing::Note.new("message 499", {}, "heard")], last.emits
    assert_equal ["half way"], last.progress
    assert_equal [Testing::Note.new("shouting", { "level" => "info", "volume" => 11 }, nil)], last.logs
  end

  def test_everything_of_a_message_reaches_the_handler
    sent = Testing::Message.new("\xff".b, correlation_id: "c", queue: "q", headers: { "a" => "b" }, attempt: 3,
                                          milliseconds_left: 100, properties: { "row_id" => 7 })
    seen = nil
    assert_equal 200, Testing.work([sent]) { |task| (seen = task) && nil }.first.status
    assert_equal ["\xff".b, "\xff".b, "c", "q"], [seen.message, seen.bytes, seen.correlation_id, seen.queue]
    assert_equal [{ "a" => "b" }, 3], [seen.headers, seen.attempt]
    assert_equal [100, { "row_id" => 7 }], [seen.milliseconds_left, seen.properties]
    assert_raises(EncodingError) { seen.text }
    assert_includes seen.inspect, 'Task 0 of "q"'
  end

  def test_cancellation
    message = Testing::Message.new("x", cancel_after: 0.01)
    given_up, = Testing.work([message]) do |task|
      task.wait_cancelled(30) ? Ganger.retry("gave up", after: 60) : Ganger.done
    end
    assert_equal ["gave up", 60_000], [given_up.message, given_up.retry_after_ms]
    interrupted, = Testing.work([message]) { |task| task.interruptible { sleep } }
    assert_equal [429, "cancelled"], [interrupted.status, interrupted.message.lines(chomp: true).first]
  end

  # Without the harness, which knows when it cancels but not how far the handler is by then.
  def test_an_interruption_comes_nowhere_else
    flight = Ganger::Flight.new
    task = Ganger::Task.new(["x", "", "q", {}, 7, 1, nil, {}], nil, flight)
    flight.begin(task)
    seen = [task.interruptible { task.interruptible { :inner } && :outer }]
    Thread.new { flight.cancel(7) }.join
    seen << task.wait_cancelled(30)
    begin
      task.interruptible { seen << :here }
    rescue Ganger::Cancelled => error
      seen << error.message
    end
    assert_equal [:outer, true, "cancelled"], seen
  end

  def test_waiting_has_an_end
    waited, = Testing.work(["x"]) { |task| Ganger.reply(task.wait_cancelled(0.01).inspect) }
    assert_equal "false", waited.message
  end

  def test_version_1
    results = Testing.work(%w[a b], protocol: 1, concurrency: 4) { |task| Ganger.reply(task.text) }
    assert_equal %w[a b], results.map(&:message)
  end

  def test_what_the_worker_raises_is_raised
    assert_raises(SystemExit) { Testing.work(%w[a b]) { exit(4) } }
    hostile = Testing::Message.new("x", headers: { "a" => 5 })
    assert_raises(Ganger::ProtocolError) { Testing.work([hostile], SHOUT) }
  end

  def test_a_handler_that_stands_still_is_told
    still = Queue.new
    error = assert_raises(RuntimeError) { Testing.work(["a"], timeout: 0.1) { still.pop } }
    assert_includes error.message, "nothing from the worker"
  ensure
    still.close
  end

  def test_the_current_task_is_known_and_only_while_it_lasts
    same = ->(task) { Ganger.reply(Fiber.new { Ganger.current_task.equal?(task) }.resume.inspect) }
    results = Testing.work(["x"] * 8, same, concurrency: 4)
    assert_equal ["true"] * 8, results.map(&:message)
    assert_nil Ganger.current_task
  end

  def test_the_logger_is_a_logger
    logger = Ganger::Logger.new(out = StringIO.new, progname: "shop", level: :info)
    result, = Testing.work(["x"]) do
      logger.debug("unheard")
      logger.info { "a block" }
      logger.warn("fines") { "with its own name" }
      logger.error(ArgumentError.new("an error"))
      logger.fatal(message: "fields", "level" => 9, degrees: 90)
      logger.log(Logger::WARN, [1, 2])
      nil
    end
    assert_equal ["a block", "with its own name"], result.logs.first(2).map(&:message)
    assert_equal %w[shop fines shop shop shop], result.logs.map { |log| log.headers["target"] }
    assert_equal %w[info warn error error warn], result.logs.map { |log| log.headers["level"] }
    assert_includes result.logs[2].message, "an error (ArgumentError)"
    assert_equal [9, 90], result.logs[3].headers.values_at("level_", "degrees")
    assert_equal ["fields", "[1, 2]"], result.logs.last(2).map(&:message)
    assert_empty out.string
    logger.warn("outside")
    assert_includes out.string, "outside"
  end

  def test_bad_arguments_are_told
    [0, -1, 1.5, nil].each do |concurrency|
      error = assert_raises(ArgumentError) { Ganger.run(SHOUT, concurrency:) }
      assert_includes error.message, "concurrency must be a whole number from 1"
    end
    assert_includes assert_raises(ArgumentError) { Ganger.run }.message, "must be callable"
    [-1, Float::NAN, Float::INFINITY].each do |after|
      assert_includes assert_raises(ArgumentError) { Ganger.retry(after:) }.message, "0 or more seconds"
    end
    result, = Testing.work(["a"]) { |task| task.emit("", "x") }
    assert_includes result.message, "emit needs the name of a queue"
  end
end

# With what the library uses of OpenTelemetry's API, which no package of Debian's brings.
class TestTraces < Minitest::Test
  module OpenTelemetry
    def self.propagation = self
    def self.extract(carrier) = carrier["traceparent"].split("-")[1]

    module Context
      def self.with_current(context)
        Thread.current[:trace] = context
        yield
      ensure
        Thread.current[:trace] = nil
      end
    end
  end

  def test_a_handler_runs_in_the_context_of_its_message
    Object.const_set(:OpenTelemetry, OpenTelemetry)
    trace = "0af7651916cd43dd8448eb211c80319c"
    traced = Ganger::Testing::Message.new(headers: { "traceparent" => "00-#{trace}-b7ad6b7169203331-01" })
    results = Ganger::Testing.work([traced, "", traced, ""]) { Ganger.reply(Thread.current[:trace].inspect) }
    assert_equal [trace.inspect, "nil"] * 2, results.map(&:message)
  ensure
    Object.send(:remove_const, :OpenTelemetry)
  end
end
