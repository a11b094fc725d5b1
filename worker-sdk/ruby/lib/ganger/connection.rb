# frozen_string_literal: true

module Ganger
  # Frames to the pipe, from any thread. Those that wait for each other go out in one write.
  class Writer # :nodoc:
    def initialize(pipe)
      @pipe = pipe
      @lock = Mutex.new
      @waiting = Queue.new
    end

    # Returns when it is on its way. A daemon that is gone is no error: the pipe's end says so.
    def write(frame)
      unless @lock.try_lock
        @waiting << frame
        @lock.lock
        frame = nil
      end
      begin
        send(frame || take)
      ensure
        @lock.unlock
      end
    rescue IOError, SystemCallError
      nil
    end

    private

    # Mostly there is room, and no need to let other threads run meanwhile.
    def send(data)
      sent = @pipe.write_nonblock(data, exception: false)
      sent = 0 if sent == :wait_writable
      @pipe.write(data.byteslice(sent..)) if sent < data.bytesize
    end

    # Nothing, if another thread has taken all along.
    def take
      frames = String.new
      frames << @waiting.pop until @waiting.empty?
      frames
    end
  end

  # One connection, worked off to its end by {run}.
  class Connection # :nodoc:
    READ_BYTES = 1 << 13
    READ_BYTES_LARGE = 1 << 18
    FAILURE_BYTES_MAX = 1 << 20
    YIELD = "__context_switch__"
    private_constant :READ_BYTES, :READ_BYTES_LARGE, :FAILURE_BYTES_MAX, :YIELD

    attr_reader :version

    def initialize(handler, pipe, control, version:, concurrency:,
                   frame_bytes_max: Wire::FRAME_BYTES_MAX)
      @handler = handler
      @pipe = pipe
      @control = control
      @version = version
      @concurrency = concurrency
      @frame_bytes_max = frame_bytes_max
      @writer = Writer.new(pipe)
      @flight = Flight.new
      @reading = Mutex.new
      @splitter = Wire::Splitter.new(frame_bytes_max)
      @read_bytes = READ_BYTES
      @fatal = nil
    end

    # Until the daemon has asked to leave and all that is in hand is answered.
    def run
      @writer.write(hello) if @version > 1
      heeding = heed_control_lines
      @version > 1 && @concurrency > 1 ? work_off_in_threads : hand.work_off
      raise @fatal if @fatal
    ensure
      heeding&.kill
      @pipe.close
    end

    # The next message's frame; nil when there are no more. The hands take turns: one waits, then works
    # on what has come while another waits, so that a message goes through no other thread.
    def next_frame
      @reading.synchronize { read_frame }
    end

    # The end, with this as its reason.
    def fail_with(error)
      @fatal ||= error
      leave
    end

    # What a task has to say before its answer.
    def note(task, status, message, headers: nil, queue: nil)
      if @version == 1
        return complain(message, headers) if status == Status::LOG
        if status == Status::EMIT
          raise ProtocolError, "emit needs version 2 of the protocol, which this daemon lacks"
        end

        status = Status::IGNORE_MESSAGE
      end
      note = frame(task, message, status, headers:, queue:)
      # Half a frame would be the end of this worker, whoever it is that interrupts the handler.
      Thread.handle_interrupt(Object => :never) { @writer.write(note) }
      nil
    end

    def write(frame)
      @writer.write(frame)
    end

    # An output about a task, which has to know no more than that.
    def frame(task, message, status, **rest)
      data = Wire.encode(message, status, id: answered_id(task), **rest)
      # What a failure has to say is cut already, and must go out whatever the limit is.
      limit = status == Status::UNKNOWN_ERROR ? FAILURE_BYTES_MAX : @frame_bytes_max
      Wire.framed(data, [limit, @frame_bytes_max].max)
    end

    def done(task)
      Wire.done(answered_id(task))
    end

    private

    def work_off_in_threads
      threads = Array.new(@concurrency) do |n|
        Thread.new { hand.work_off }.tap do |thread|
          thread.name = "ganger-#{n}"
          thread.report_on_exception = false # it is raised by `run`
        end
      end
      threads.each(&:join)
    end

    def hand
      Hand.new(@handler, self, @flight)
    end

    def read_frame
      until @fatal || (frame = @splitter.shift)
        data = @pipe.readpartial(@read_bytes)
        # A buffer that is large costs more to get than to fill.
        @read_bytes = data.bytesize < @read_bytes ? READ_BYTES : READ_BYTES_LARGE
        frame = @splitter.sole(data)
        return frame if frame

        @splitter << data
      end
      frame
    rescue IOError, SystemCallError
      nil # the end
    end

    def heed_control_lines
      Thread.new do
        while (line = @control.gets("\n", Start::LINE_BYTES_MAX)&.chomp)
          case line
          when "__quit__" then leave
          when YIELD then @flight.cancel_all if @version == 1
          when /\A__cancel__ (\d+)\z/ then @flight.cancel($1.to_i) if @version > 1
          end
        end
      rescue IOError, SystemCallError
        nil
      ensure
        leave
      end
    end

    # What has arrived is still read and worked on, then the pipe ends; writing goes on.
    def leave
      @pipe.shutdown(Socket::SHUT_RD)
    rescue IOError, SystemCallError
      nil # it has ended
    end

    def answered_id(task)
      task.id if @version > 1
    end

    def hello
      headers = { sdk: "ganger-ruby", version: VERSION, concurrency: @concurrency.to_s }
      Wire.framed(Wire.encode("", Status::HELLO, headers:), @frame_bytes_max)
    end

    def complain(message, headers)
      level, *fields = headers.map { |name, value| "#{name}=#{value}" }
      warn ["#{level.delete_prefix('level=')}: #{message}", *fields].join(" ")
    end
  end
end
