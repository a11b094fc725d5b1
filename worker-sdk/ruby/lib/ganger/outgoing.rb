# frozen_string_literal: true

require "json"

module Ganger
  # What may be sent. Bodies and headers that programs read go exactly as they are or not at all; reasons,
  # progress and log records, which people read, are made text whatever they hold.
  class Outgoing # :nodoc:
    HEADERS_MAX = 10_000
    FRAME_OVERHEAD_BYTES = 64
    INTEGERS = (-(1 << 63)..(1 << 64) - 1)
    REASONS = [Status::REQUEUE, Status::REJECT, Status::RETRY, Status::UNKNOWN_ERROR, 503].freeze
    JSON_KINDS = [Hash, Array, Numeric, TrueClass, FalseClass].freeze
    private_constant :HEADERS_MAX, :FRAME_OVERHEAD_BYTES, :INTEGERS, :REASONS, :JSON_KINDS

    def initialize(frame_bytes_max)
      @frame_bytes_max = frame_bytes_max
    end

    # An answer; raises for one that the daemon would refuse.
    def outcome(outcome, id)
      status = whole(outcome.status, "an answer's status")
      if status == Status::IGNORE_MESSAGE || status.between?(100, 199)
        raise ArgumentError, "an answer's status must be one that ends the message: #{status}"
      end

      after_ms = outcome.after_ms && whole(outcome.after_ms, "after_ms")
      raise ArgumentError, "after_ms must be a whole number from 0: #{after_ms}" if after_ms&.negative?

      message, headers = outcome.message, outcome.headers
      REASONS.include?(status) ? message = readable(message) : (message, headers = body(message, headers))
      frame(message, status, headers: sent_headers(headers), queue: outcome.queue, id:, after_ms:)
    end

    # An emit, a log record or a progress note.
    def note(status, message, headers: nil, queue: nil, id: nil)
      if status == Status::EMIT
        message, headers = body(message, headers)
        headers = sent_headers(headers)
      else
        message = readable(message)
        headers = headers&.to_h { |name, value| [readable(name), field(value)] }
      end
      frame(message, status, headers:, queue:, id:)
    end

    def frame(message, status, queue: nil, **rest)
      unless queue.nil? || queue.is_a?(String) || queue.is_a?(Symbol)
        raise TypeError, "a queue's name must be text: #{queue.inspect[0, 40]}"
      end

      Wire.framed(Wire.encode(message, status, queue:, **rest), @frame_bytes_max)
    end

    # For people: never an error, never longer than a frame.
    def readable(value)
      text = value.is_a?(String) ? value : text_of(value)
      text = text.byteslice(0, (@frame_bytes_max / 2) - FRAME_OVERHEAD_BYTES)
      # Ruby puts a text together of parts in several encodings.
      text = text.dup.force_encoding(Encoding::UTF_8) unless text.encoding == Encoding::UTF_8
      text.scrub("?")
    end

    private

    def text_of(value)
      value.is_a?(Exception) ? "#{value.class}: #{value.message}" : value.to_s
    rescue StandardError => error
      "#{value.class}, whose text raises #{error.class}"
    end

    # A log record's field: a number stays one.
    def field(value)
      case value
      when nil, true, false, Float then value
      when INTEGERS then value.is_a?(Integer) ? value : readable(value)
      else readable(value)
      end
    end

    # A String as it is; JSON, with its content type, of anything else that JSON has.
    def body(message, headers)
      return [message || "", headers] if message.nil? || message.is_a?(String)

      text = json(message, "a message")
      named = headers&.any? { |name, _| name.to_s.casecmp?("content-type") }
      [text, named ? headers : { **(headers || {}), "content-type" => "application/json" }]
    end

    # The daemon reads each value in its text form; what MessagePack lacks goes as JSON.
    def sent_headers(headers)
      return if headers.nil?
      raise TypeError, "headers must be a Hash: #{headers.class}" unless headers.is_a?(Hash)
      if headers.size > HEADERS_MAX
        raise ArgumentError, "a message must have at most #{HEADERS_MAX} headers: #{headers.size}"
      end

      headers.transform_values do |value|
        value.is_a?(Hash) || value.is_a?(Array) ? json(value, "a header") : value
      end
    end

    def json(value, what)
      raise TypeError, value.class.to_s unless JSON_KINDS.any? { |kind| value.is_a?(kind) }

      JSON.generate(value)
    rescue JSON::JSONError, EncodingError, TypeError, SystemStackError => error
      raise TypeError, "#{what} must be text, bytes or what JSON has: #{error.message}"
    end

    def whole(number, what)
      return number if number.is_a?(Integer) && INTEGERS.cover?(number)

      raise TypeError, "#{what} must be a whole number: #{number.inspect[0, 40]}"
    end
  end
end
