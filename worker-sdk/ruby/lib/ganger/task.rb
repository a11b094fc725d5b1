# frozen_string_literal: true

module Ganger
  # A message as its handler sees it.
  class Task
    # @return [String] the body: UTF-8 if it is text, else of the encoding BINARY
    attr_reader :message
    # @return [String] empty if the message has none
    attr_reader :correlation_id
    # @return [String] the queue or topic that it was read from
    attr_reader :queue
    # @return [Hash{String => String}]
    attr_reader :headers
    # @return [Integer, nil] the daemon's number for it on this connection
    attr_reader :id
    # @return [Integer, nil] which try this is, from 1
    attr_reader :attempt
    # @return [Integer, nil] how long from its arrival until this process is killed for taking too long
    attr_reader :milliseconds_left
    # @return [Hash{String => Object}] what the source knows of it: message id, content type, topic,
    #   partition, offset and so on
    attr_reader :properties

    # Of the library itself.
    attr_writer :cancelled, :answered # :nodoc:
    attr_accessor :interrupted # :nodoc:

    def initialize(fields, connection, flight) # :nodoc:
      @message, @correlation_id, @queue, @headers, @id, @attempt, @milliseconds_left, @properties = fields
      @connection = connection
      @flight = flight
      @cancelled = false
      @answered = false
      @interrupted = nil
    end

    # The body as text.
    #
    # @return [String]
    # @raise [EncodingError] if it is none
    def text
      return @message unless @message.encoding == Encoding::BINARY

      raise EncodingError, "the message is not UTF-8: see task.bytes"
    end

    # The body as bytes, whatever it is.
    #
    # @return [String] of the encoding BINARY
    def bytes
      @message.b
    end

    # Whether the daemon has asked to abandon it: it took too long, or the daemon stops.
    def cancelled?
      @cancelled
    end

    # Whether the handler has ended: what is said now is about no message in flight.
    def answered? # :nodoc:
      @answered
    end

    # Waits so many seconds, or until the daemon asks to abandon this.
    #
    # @param seconds [Numeric, nil] nil is for ever
    # @return [Boolean] {#cancelled?}
    def wait_cancelled(seconds = nil)
      @flight.wait(self, seconds)
    end

    # @raise [Cancelled] if the daemon has asked to abandon it
    # @return [void]
    def check_cancelled
      raise Cancelled if @cancelled
    end

    # Runs the block, in which {Cancelled} is raised wherever it stands when the daemon asks to abandon
    # this. Only for what may be left at any point, such as waiting for an answer of another server.
    #
    # @return what the block returns
    # @raise [Cancelled]
    def interruptible(&block)
      @flight.interruptible(self, &block)
    end

    # Shows how far it is; it also proves that the worker is alive (+stall_timeout+).
    #
    # @param message [String]
    # @return [void]
    def progress(message)
      @connection.note(self, Status::PROGRESS, message)
    end

    # Publishes a message while the work goes on. This task is not done before it is stored; when it is
    # tried again, it emits again, with the same header +ganger-emit-id+.
    #
    # @param queue [String]
    # @param message [String, Object] text, or bytes if its encoding is BINARY; anything else goes as JSON
    # @param headers [Hash, nil]
    # @return [void]
    def emit(queue, message, headers: nil)
      raise ArgumentError, "emit needs the name of a queue: #{queue.inspect}" if queue.to_s.empty?

      @connection.note(self, Status::EMIT, message, headers:, queue:)
    end

    # Writes a record of this message to the daemon's log; {Logger} comes here by itself. Once the
    # message is answered, in a forked process and with a daemon of version 1 it goes to stderr.
    #
    # @param level [String, Symbol] trace, debug, info, warn or error
    # @param message [String]
    # @param target [String, nil] what it comes from
    # @param fields further fields of the record
    # @return [void]
    def log(level, message, target: nil, **fields)
      fields = { target: target, **fields } if target
      @connection.note(self, Status::LOG, message, headers: { level: level, **fields })
    end

    # Whether what it logs reaches the daemon by the pipe.
    def noted? # :nodoc:
      @connection.open?(self)
    end

    def inspect
      "#<Ganger::Task #{@id} of #{@queue.inspect}: #{@message.inspect[0, 60]}>"
    end
  end
end
