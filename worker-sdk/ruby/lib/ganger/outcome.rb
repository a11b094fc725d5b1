# frozen_string_literal: true

module Ganger
  # The protocol's numbers. A handler needs none of them: see {Ganger.done}, {Ganger.reply} and so on.
  module Status
    IGNORE_MESSAGE = -1
    HELLO = 100
    LOG = 101
    PROGRESS = 102
    EMIT = 103
    DONE = 200
    DONE_WITH_REPLY = 201
    REQUEUE = 300
    REJECT = 400
    RETRY = 429
    UNKNOWN_ERROR = 500
  end

  # What became of a message. Make one by {Ganger.done}, {Ganger.reply} and so on; by hand, to answer a
  # status that the pool's configuration gives a meaning (+[pools.statuses]+).
  class Outcome
    # @return [Integer] one of {Status}, or of the pool's own
    attr_reader :status
    # @return [String, Object] the reply, or the reason of a failure; a reply that is no String is sent as JSON
    attr_reader :message
    # @return [Hash, nil] of the reply
    attr_reader :headers
    # @return [String, nil] where the reply goes, if not to the message's own reply-to
    attr_reader :queue
    # @return [Integer, nil] after how many milliseconds to try again, if not after the pool's own wait
    attr_reader :after_ms

    def initialize(status, message = "", headers: nil, queue: nil, after_ms: nil)
      @status = status
      @message = message
      @headers = headers
      @queue = queue
      @after_ms = after_ms
      freeze
    end
  end

  DONE = Outcome.new(Status::DONE)
  private_constant :DONE

  class << self
    # The work is done: the message leaves its queue.
    #
    # @return [Outcome]
    def done
      DONE
    end

    # The work is done, and this is its result: published to the message's reply-to or to +queue+,
    # before the message leaves its own. With <tt>queue: task.queue</tt> a long task hands on what is
    # left.
    #
    # @param message [String, Object] text, or bytes if its encoding is BINARY. A Hash, an Array, a number or
    #   a boolean goes as JSON, with the header +content-type: application/json+ unless there is one. What
    #   can't be sent is this message's failure.
    # @param headers [Hash, nil]
    # @param queue [String, Symbol, nil]
    # @return [Outcome]
    def reply(message = "", headers: nil, queue: nil)
      Outcome.new(Status::DONE_WITH_REPLY, message, headers:, queue:)
    end

    # It failed for now: try again after so many seconds, or after the pool's own wait. An attempt is
    # charged; after the last one the message is a dead letter with this reason.
    #
    # @param reason [String]
    # @param after [Numeric, nil] seconds
    # @return [Outcome]
    def retry(reason = "", after: nil)
      return Outcome.new(Status::RETRY, reason) if after.nil?
      raise ArgumentError, "after must be 0 or more seconds: #{after}" unless after >= 0 && after.to_f.finite?

      Outcome.new(Status::RETRY, reason, after_ms: (after * 1000).round)
    end

    # It can never work: the message becomes a dead letter with this reason, now.
    #
    # @param reason [String]
    # @return [Outcome]
    def reject(reason = "")
      Outcome.new(Status::REJECT, reason)
    end

    # Not here, not now: hand it out again after a short wait. No attempt is charged.
    #
    # @param reason [String]
    # @return [Outcome]
    def requeue(reason = "")
      Outcome.new(Status::REQUEUE, reason)
    end
  end
end
