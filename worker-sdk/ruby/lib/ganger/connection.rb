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
    YIELD = "__context_switch__"
    private_constant :READ_BYTES, :READ_BYTES_LARGE, :YIELD

    attr_reader :version, :outgoing

    def initialize(handler, pipe, control, version:, concurrency:,
                   frame_bytes_max: Wire::FRAME_BYTES_MAX)
      @pid = Process.pid
      @handler = handler
      @pipe = pipe
      @control = control
      @version = version
      @concurrency = concurrency
      @outgoing = Outgoing.new(frame_bytes_max)
      @writer = Writer.new(pipe)
      @flight = Flight.new
      @reading = Mutex.new
      @splitter = Wire::Splitter.new(frame_bytes_max)
      @read_bytes = READ_BYTES
      @noting = Mutex.new
      # Under the gate: whether nothing new is begun, how many are in hand, and the ids of what came meanwhile.
      @gate = Mutex.new
      @ending = false
      @in_hand = 0
      @held = []
      @fatal = nil
    end

    # Until the daemon has asked to leave and all that is in hand is answered.
    def run
      @writer.write(hello) if @version > 1
      heeding = heed_control_lines
      @version > 1 && @concurrency > 1 ? work_off_in_threads : hand.work_off
      raise @fatal if @fatal
    ensure
      return_held
      heeding&.kill
      @pipe.close
    end

    # The next message's frame; nil when there are no more. The hands take turns: one waits, then works
    # on what has come while another waits, so that a message goes through no other thread.
    def next_frame
      @reading.synchronize { read_frame }
    end

    # Has the block work on what is in the frame, unless this worker is about to end: then it waits to be
    # given back. The reading end stays open until nothing is in hand, for a daemon that can't write any
    # more takes the worker for lost, with all that it works on.
    def take(frame)
      is_held = @gate.synchronize do
        @in_hand += 1 unless @ending
        @ending
      end
      return hold(frame) if is_held

      begin
        yield
      ensure
        is_over = @gate.synchronize { (@in_hand -= 1).zero? && @ending }
        leave if is_over
      end
    end

    # The end, with this as its reason, once all that is in hand is answered.
    def end_with(error)
      @gate.synchronize do
        @fatal ||= error
        @ending = true
      end
    end

    # The end at once: what comes from the daemon can't be understood.
    def fail_with(error)
      end_with(error)
      leave
    end

    # Whether this is a process that a handler has forked. Only its parent answers.
    def child?
      Process.pid != @pid
    end

    # Such a process has left the handler.
    def end_child(error)
      warn error.full_message(highlight: false) unless error.nil? || error.is_a?(SystemExit)
      [$stdout, $stderr].each(&:flush)
    ensure
      exit!(error.is_a?(SystemExit) ? error.status : (error ? 1 : 0))
    end

    # Whether what a task logs still reaches the daemon by the pipe.
    def open?(task)
      @version > 1 && !task.answered? && !child?
    end

    # What a task has to say before its answer.
    def note(task, status, message, headers: nil, queue: nil)
      return complain(message, headers) if status == Status::LOG && !open?(task)
      raise "a process that the handler has forked can't emit or show progress" if child?

      if @version == 1
        if status == Status::EMIT
          raise ProtocolError, "emit needs version 2 of the protocol, which this daemon lacks"
        end

        status = Status::IGNORE_MESSAGE
      end
      write_note(task, status, @outgoing.note(status, message, headers:, queue:, id: answered_id(task)))
    end

    # The answer: a note that came after it would be about no message in flight.
    def answer(task, frame)
      @noting.synchronize { task.answered = true }
      @writer.write(frame)
    end

    # From what a handler returned.
    def outcome(task, outcome)
      @outgoing.outcome(outcome, answered_id(task))
    end

    def done(task)
      Wire.done(answered_id(task))
    end

    private

    def write_note(task, status, note)
      # Half a frame would be the end of this worker, whoever it is that interrupts the handler.
      Thread.handle_interrupt(Object => :never) do
        @noting.synchronize do
          if task.answered?
            raise "emit must come before the handler's answer" if status == Status::EMIT
          else
            @writer.write(note)
          end
        end
      end
      nil
    end

    # It is given back at the end, or when it is cancelled, as its time may run out before.
    def hold(frame)
      id = answered_id(Task.new(Wire::Decoder.new.decode(frame), self, @flight))
      @gate.synchronize { @held << id }
      return_cancelled(id) if @flight.cancelled_early?(id)
    end

    def return_cancelled(id)
      @gate.synchronize { give_back(id) if @held.delete(id) }
    end

    # What has come and was not begun.
    def return_held
      leave
      hold_rest
      @gate.synchronize { give_back(@held.shift) until @held.empty? }
    end

    def hold_rest
      while (frame = next_frame)
        hold(frame)
      end
    rescue ProtocolError
      nil # nor can what came after it be understood
    end

    def give_back(id)
      @writer.write(@outgoing.outcome(Ganger.requeue("the worker is about to end"), id))
    end

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
      until (frame = @splitter.shift)
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
          when /\A__cancel__ (\d+)\z/ then cancel($1.to_i) if @version > 1
          end
        end
      rescue IOError, SystemCallError
        nil
      ensure
        leave
      end
    end

    def cancel(id)
      @flight.cancel(id)
      return_cancelled(id)
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
      @outgoing.frame("", Status::HELLO, headers:)
    end

    def complain(message, headers)
      level, *fields = headers.map { |name, value| "#{name}=#{value}" }
      warn ["#{level.delete_prefix('level=')}: #{@outgoing.readable(message)}", *fields].join(" ")
    end
  end
end
