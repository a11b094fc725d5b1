# frozen_string_literal: true

require "socket"

require_relative "version"
require_relative "wire"
require_relative "outcome"
require_relative "outgoing"
require_relative "flight"
require_relative "task"
require_relative "logger"
require_relative "tracing"
require_relative "hand"
require_relative "connection"
require_relative "start"

# Write workers for ganger. A worker is a block and a call of {run}:
#
#   require "ganger/worker"
#
#   Ganger.run { |task| Ganger.reply(task.text.upcase) }
#
# The block returns an {Outcome}, made by {done}, {reply}, {retry}, {reject} or {requeue}; nil is the
# same as +done+. Anything else is a mistake and answers so: a block returns its last value, whether
# that was meant or not. One that raises has failed: the message is tried again by the pool's rules,
# and the worker goes on. {Testing} runs a handler without a daemon.
module Ganger
  # Connects to the daemon that has started this process, works until it asks to leave, and returns
  # when all that is in hand is answered.
  #
  # @param handler [#call, nil] instead of the block; it is called with a {Task}
  # @param concurrency [Integer] how many messages are in hand at once, each in a thread of its own;
  #   with 1 the handler runs in the thread that calls this
  # @param frame_bytes_max [Integer, nil] lower than the pool's own, which the daemon tells
  # @param warm_up [#call, nil] is called before this process takes messages: what it loads counts against
  #   no message's timeout, but against the pool's +start_timeout+
  # @yieldparam task [Task]
  # @yieldreturn [Outcome, nil]
  # @return [void]
  # @raise [ProtocolError] if what the daemon sends is refused
  def self.run(handler = nil, concurrency: 1, frame_bytes_max: nil, warm_up: nil, &block)
    handler ||= block
    raise ArgumentError, "a handler must be callable: #{handler.inspect}" unless handler.respond_to?(:call)
    unless concurrency.is_a?(Integer) && concurrency.positive?
      raise ArgumentError, "concurrency must be a whole number from 1: #{concurrency.inspect}"
    end

    name, control = Start.take
    warm_up&.call
    pipe = Start.connect(name)
    frame_bytes_max = Start.frame_bytes_max(frame_bytes_max)
    version = ENV["GANGER_PROTOCOL"].to_i >= 2 ? 2 : 1
    Connection.new(handler, pipe, control, version:, concurrency:, frame_bytes_max:).run
  end

  # The task that this thread works on; nil outside of a handler.
  #
  # @return [Task, nil]
  def self.current_task
    Thread.current.thread_variable_get(:ganger_hand)&.task
  end
end
