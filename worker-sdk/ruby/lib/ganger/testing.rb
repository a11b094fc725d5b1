# frozen_string_literal: true

require "io/wait"

require_relative "worker"

module Ganger
  # Runs a handler on messages, without a daemon: what is tested is the handler in the real worker, on a
  # real socket, in this process.
  #
  #   require "ganger/testing"
  #
  #   result, = Ganger::Testing.work(["ten"]) { |task| Ganger.reply(task.text.upcase) }
  #   assert_equal [201, "TEN"], [result.status, result.message]
  module Testing
    # What the handler is given. +cancel_after+ asks the handler to abandon it, so many seconds after it
    # was handed out.
    Message = Struct.new(:body, :correlation_id, :queue, :headers, :attempt, :milliseconds_left,
                         :properties, :cancel_after) do
      def initialize(body = "", correlation_id: "", queue: "test", headers: {}, attempt: 1,
                     milliseconds_left: nil, properties: {}, cancel_after: nil)
        super(body, correlation_id, queue, headers, attempt, milliseconds_left, properties, cancel_after)
      end

      def input(id) # :nodoc:
        { "0" => body, "1" => correlation_id, "2" => queue, "3" => headers, "4" => id, "5" => attempt,
          "6" => milliseconds_left, "7" => properties }
      end
    end

    # An emit or a log record.
    Note = Struct.new(:message, :headers, :queue)

    # What became of one message, and what its handler sent meanwhile: +emits+ and +logs+ are lists of
    # {Note}, +progress+ is one of texts.
    Result = Struct.new(:status, :message, :headers, :queue, :retry_after_ms, :emits, :logs, :progress) do
      def initialize
        super(nil, nil, nil, nil, nil, [], [], [])
      end
    end

    # The results, in the order of the messages; what the worker itself raises is raised here.
    #
    # @param messages [Enumerable<Message, String>]
    # @param handler [#call, nil] instead of the block
    # @param protocol [Integer] 1 or 2
    # @param timeout [Numeric] seconds in which something must be heard of the worker
    # @return [Array<Result>]
    # @raise [RuntimeError] if nothing is
    def self.work(messages, handler = nil, concurrency: 1, protocol: 2, timeout: 60, &block)
      ours, theirs = UNIXSocket.pair
      heeded, control = IO.pipe
      connection = Connection.new(handler || block, theirs, heeded, version: protocol, concurrency:)
      worker = Thread.new { error_of { connection.run } }
      peer = Peer.new(ours, control, messages, protocol == 1 ? 1 : concurrency)
      peer.exchange(timeout) { raise_of(worker.join) }
      ours.close
      raise_of(worker.join(timeout))
      peer.results
    ensure
      [ours, heeded, control].each(&:close)
    end

    # What ends a thread by SystemExit is also raised in the main thread, at any time: so nothing does.
    def self.error_of
      yield
      nil
    rescue Exception => error # rubocop:disable Lint/RescueException
      error
    end

    def self.raise_of(worker)
      error = worker&.value
      raise error if error
    end
    private_class_method :error_of, :raise_of

    # The daemon's side.
    class Peer # :nodoc:
      attr_reader :results

      def initialize(pipe, control, messages, room)
        @pipe = pipe
        @control = control
        @room = room
        messages = messages.map { |each| each.is_a?(Message) ? each : Message.new(each) }
        @results = messages.map { Result.new }
        @waiting = messages.each_with_index.to_a
        @in_flight = []
        @cancellations = [] # when, and of which
        @splitter = Wire::Splitter.new(Wire::FRAME_BYTES_MAX)
      end

      # The block is called when the worker has left early.
      def exchange(timeout)
        until @waiting.empty? && @in_flight.empty?
          begin
            send_next while @waiting.any? && @in_flight.size < @room
            take(MessagePack.unpack(receive(timeout)))
          rescue EOFError, SystemCallError
            yield
            raise "the worker has left with #{@in_flight.size} in hand"
          end
        end
      end

      private

      def send_next
        message, id = @waiting.shift
        @in_flight << id
        @cancellations << [now + message.cancel_after, id] if message.cancel_after
        @pipe.write(Wire.framed(MessagePack.pack(message.input(id)), Wire::FRAME_BYTES_MAX))
      end

      def receive(timeout)
        until (frame = @splitter.shift)
          wait(now + timeout)
          @splitter << @pipe.readpartial(1 << 16)
        end
        frame
      end

      def wait(deadline)
        until @pipe.wait_readable([0, [deadline, *@cancellations.map(&:first)].min - now].max)
          raise "nothing from the worker in time" if now >= deadline

          due, @cancellations = @cancellations.partition { |at, _| at <= now }
          due.each { |_, id| @control.write("__cancel__ #{id}\n") }
        end
      end

      def take(output)
        status, message = output.values_at("1", "0")
        return if status == Status::HELLO

        id = output.fetch("4", @in_flight.first)
        result = @results[id]
        note = Note.new(message, output["2"] || {}, output["3"])
        case status
        when Status::PROGRESS, Status::IGNORE_MESSAGE then result.progress << message
        when Status::LOG then result.logs << note
        when Status::EMIT then result.emits << note
        else
          @in_flight.delete(id)
          result.status, result.message = status, message
          result.headers, result.queue, result.retry_after_ms = output.values_at("2", "3", "5")
        end
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
    private_constant :Peer
  end
end
