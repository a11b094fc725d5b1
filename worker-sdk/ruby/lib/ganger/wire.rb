# frozen_string_literal: true

require "msgpack"

module Ganger
  # The daemon, or what pretends to be one, has sent what the protocol forbids.
  class ProtocolError < StandardError
  end

  # The bytes of the protocol: frames, what the daemon sends, what a worker answers.
  module Wire # :nodoc:
    # The longest frame, unless the pool's +frame_bytes_max+ says otherwise.
    FRAME_BYTES_MAX = 64 << 20

    DEPTH_MAX = 64
    ID_MAX = (1 << 64) - 1
    # The application may have registered types of its own with MessagePack; this one is without.
    FACTORY = MessagePack::Factory.new.freeze
    DONE = ["83a130a0a131ccc8a134"].pack("H*").freeze
    DONE_V1 = ["0000000882a130a0a131ccc8"].pack("H*").freeze
    private_constant :DEPTH_MAX, :ID_MAX, :FACTORY, :DONE, :DONE_V1

    # Cuts a stream of bytes into frames, however they come.
    class Splitter
      def initialize(frame_bytes_max)
        @frame_bytes_max = frame_bytes_max
        @buffer = String.new
        @start = 0
      end

      # The frame that the data is, if it is just one and nothing is left of those before: the usual case.
      def sole(data)
        return unless @start == @buffer.bytesize

        size = data.bytesize - 4
        data.byteslice(4, size) if size.between?(1, @frame_bytes_max) && data.unpack1("N") == size
      end

      # Takes what has been read, and may keep the string itself.
      def <<(data)
        if @start == @buffer.bytesize
          @buffer = data
        else
          @buffer = @buffer.byteslice(@start..) if @start.positive?
          @buffer << data
        end
        @start = 0
        self
      end

      # The next frame that is whole, or nil; ProtocolError for a bad length, once what came before
      # it has been taken.
      def shift
        left = @buffer.bytesize - @start
        return if left < 4

        size = @buffer.unpack1("N", offset: @start)
        judge(size) unless size.positive? && size <= @frame_bytes_max
        return if left < size + 4

        frame = @buffer.byteslice(@start + 4, size)
        @start += size + 4
        frame
      end

      # What is left of a frame that is not whole.
      def rest
        @buffer.byteslice(@start..)
      end

      private

      def judge(size)
        raise ProtocolError, "a frame's length must be 1 or more: 0" if size.zero?
        if size > 0x7fff_ffff
          raise ProtocolError, format("a frame's length must not have its top bit set: %#x", size)
        end

        raise ProtocolError,
              "a frame must have at most #{@frame_bytes_max} bytes (run's frame_bytes_max): #{size}"
      end
    end

    # Reads inputs, in one thread.
    class Decoder
      KEYS = %w[0 1 2 3 4 5 6 7].freeze
      UTF_8 = Encoding::UTF_8
      private_constant :KEYS, :UTF_8

      def initialize
        @unpacker = FACTORY.unpacker(allow_unknown_ext: true)
      end

      # The values of keys "0" to "7", checked; ProtocolError says what is wrong.
      def decode(frame)
        input = unpack(frame)
        raise ProtocolError, "an input must be a map: #{input.class}" unless input.is_a?(Hash)

        fields = input.values_at(*KEYS)
        check_unusual(frame, input, fields) unless usual?(frame, input, fields)
        check(fields)
      end

      private

      def unpack(frame)
        @unpacker.feed_reference(frame)
        @unpacker.full_unpack
      rescue MessagePack::UnpackError, EOFError, ArgumentError, NoMemoryError, TypeError => error
        raise ProtocolError, "an input must be one MessagePack map: #{error.message}"
      end

      def wrong_key(key)
        ProtocolError.new("an input's keys must be texts: #{key.inspect[0, 40]}")
      end

      # A map of eight keys that are all known has each once, and nothing else; they may be bytes still.
      def usual?(frame, input, fields)
        message, correlation_id, queue, headers, id, attempt, _, properties = fields
        frame.getbyte(0) == 0x88 && input.size == 8 && input.key?("6") &&
          message && correlation_id && queue && headers && id && attempt && properties &&
          input.each_key { |key| break unless key.encoding == UTF_8 }
      end

      def check_unusual(frame, input, fields)
        input.each_key { |key| raise wrong_key(key) unless key.is_a?(String) && key.encoding == UTF_8 }
        @unpacker.feed_reference(frame)
        keys = Array.new(@unpacker.read_map_header) { @unpacker.read.tap { @unpacker.skip } }
        twice = KEYS.find { |key| keys.count(key) > 1 }
        raise ProtocolError, %(an input must have each key once: "#{twice}" is there twice) if twice

        input.each do |key, value|
          raise wrong_key(key) unless key.valid_encoding?

          check_depth(value)
        end
        fill(fields, input)
      end

      # Nil is the same as empty; the first four must be there.
      def fill(fields, input)
        missing = KEYS.first(4).find { |key| !input.key?(key) }
        raise ProtocolError, %(an input must have the keys "0" to "3": no "#{missing}") if missing

        fields[7] = {} if fields[7].nil?
        [+"", "", "", {}].each_with_index { |empty, number| fields[number] = empty if fields[number].nil? }
      end

      # MessagePack gives str the encoding UTF-8, valid or not, and bin BINARY.
      def check(fields)
        message, correlation_id, queue, headers, id, attempt, left, properties = fields
        raise wrong("0", "a text or bytes", message) unless message.is_a?(String)

        message.force_encoding(Encoding::BINARY) unless message.valid_encoding?
        raise wrong("1", "a text", correlation_id) unless text?(correlation_id)
        raise wrong("2", "a text", queue) unless text?(queue)

        check_headers(headers)
        raise wrong("4", "a number from 0", id) unless number?(id, 0)
        raise wrong("5", "a number from 1", attempt) unless number?(attempt, 1)
        raise wrong("6", "a number from 0", left) unless number?(left, 0)
        raise wrong("7", "a map", properties) unless properties.is_a?(Hash)

        properties.each_value { |value| check_depth(properties) if container?(value) }
        fields
      end

      def check_headers(headers)
        raise wrong("3", "a map", headers) unless headers.is_a?(Hash)

        headers.each do |name, value|
          raise wrong("3", "a map of texts to texts", [name, value]) unless text?(name) && text?(value)
        end
      end

      def text?(value)
        value.is_a?(String) && value.encoding == UTF_8 && value.valid_encoding?
      end

      def number?(value, least)
        value.nil? || (value.is_a?(Integer) && value >= least)
      end

      def container?(value)
        value.is_a?(Hash) || value.is_a?(Array)
      end

      # The frame's own map is the first level, the value the second.
      def check_depth(value)
        level = [value]
        (DEPTH_MAX - 1).times do
          level = level.flat_map { |each| each.is_a?(Hash) ? each.values : each }
          level.select! { |each| container?(each) }
          return if level.empty?
        end
        raise ProtocolError, "an input must be nested at most #{DEPTH_MAX} deep"
      end

      def wrong(key, wanted, value)
        ProtocolError.new(%(an input's key "#{key}" must hold #{wanted}: #{value.inspect[0, 40]}))
      end
    end

    module_function

    # An output as a MessagePack map, without its length.
    def encode(message, status, headers: nil, queue: nil, id: nil, after_ms: nil)
      output = { "0" => body(message), "1" => status }
      output["2"] = headers.to_h { |name, value| [plain(name.to_s), plain(value)] } if headers
      output["3"] = text(queue) if queue
      output["4"] = id if id
      output["5"] = after_ms if after_ms
      FACTORY.dump(output)
    end

    # With its length in front; ArgumentError if the daemon would refuse it.
    def framed(data, frame_bytes_max)
      size = data.bytesize
      if size > frame_bytes_max
        raise ArgumentError, "an answer must have at most #{frame_bytes_max} bytes: #{size}"
      end

      [size].pack("N") << data
    end

    # The frame of the answer that most tasks have, without the way through {encode}.
    def done(id)
      return DONE_V1 if id.nil?
      return [11, DONE, id].pack("Na*C") if id < 128
      return [13, DONE, 0xcd, id].pack("Na*Cn") if id.between?(256, 65_535)
      return [15, DONE, 0xce, id].pack("Na*CN") if id.between?(65_536, 0xffff_ffff)

      data = DONE + FACTORY.dump(id)
      [data.bytesize].pack("N") << data
    end

    # What is no valid text in its encoding goes as bytes, as it would to a file.
    def body(message)
      return "" if message.nil?
      raise TypeError, "a message must be a String: #{message.inspect[0, 40]}" unless message.is_a?(String)

      message.valid_encoding? ? message : message.b
    end

    # A value that MessagePack has; its text for any other.
    def plain(value)
      case value
      when nil, true, false, Float then value
      when Integer then value.between?(-(1 << 63), ID_MAX) ? value : value.to_s
      else body(value.to_s)
      end
    end

    def text(name)
      name = name.to_s
      name = name.dup.force_encoding(Encoding::UTF_8) if name.encoding == Encoding::BINARY
      raise ArgumentError, "a queue's name must be text: #{name.inspect}" unless name.valid_encoding?

      name.encode(Encoding::UTF_8)
    end
  end
end
