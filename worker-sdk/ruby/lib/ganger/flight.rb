# frozen_string_literal: true

module Ganger
  # Raised where a handler has asked for it: in {Task#interruptible} and {Task#check_cancelled}. It is no
  # StandardError, so that a plain +rescue+ on its way does not take it. One that comes out of the
  # handler answers 429.
  class Cancelled < Exception # rubocop:disable Lint/InheritException
    def initialize(message = "cancelled")
      super
    end
  end

  # The tasks in hand, and what cancels them, which comes in another thread than they run in.
  class Flight # :nodoc:
    EARLY_MAX = 1000
    private_constant :EARLY_MAX

    def initialize
      @lock = Mutex.new
      @cancellation = ConditionVariable.new
      @tasks = {}
      @early = {} # cancelled before they came: stdin and the pipe have no common order
    end

    def begin(task)
      @lock.synchronize do
        @tasks[task.id] = task
        mark(task) if @early.delete(task.id)
      end
    end

    def end(task)
      @lock.synchronize { @tasks.delete(task.id) }
    end

    # That of this id; one that is unknown was answered, or is still in the pipe.
    def cancel(id)
      @lock.synchronize do
        if (task = @tasks[id])
          mark(task)
        else
          @early[id] = true
          @early.shift if @early.size > EARLY_MAX
        end
      end
    end

    def cancelled_early?(id)
      @lock.synchronize { !@early.delete(id).nil? }
    end

    def cancel_all
      @lock.synchronize { @tasks.each_value { |task| mark(task) } }
    end

    def cancel_task(task)
      @lock.synchronize { mark(task) }
    end

    def wait(task, seconds)
      deadline = seconds && (now + seconds)
      @lock.synchronize do
        until task.cancelled?
          left = deadline && (deadline - now)
          break if left && left <= 0

          @cancellation.wait(@lock, left)
        end
      end
      task.cancelled?
    end

    # The exception may come anywhere in the block, and nowhere else: outside of it, it waits, and
    # under the lock none is on its way.
    def interruptible(task)
      Thread.handle_interrupt(Cancelled => :never) do
        outside = task.interrupted
        @lock.synchronize do
          raise Cancelled if task.cancelled?

          task.interrupted = Thread.current
        end
        begin
          Thread.handle_interrupt(Cancelled => :immediate) { yield }
        ensure
          @lock.synchronize { task.interrupted = outside }
        end
      end
    end

    private

    def mark(task)
      return if task.cancelled?

      task.cancelled = true
      task.interrupted&.raise(Cancelled)
      @cancellation.broadcast
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
