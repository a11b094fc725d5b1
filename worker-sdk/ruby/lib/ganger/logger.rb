# frozen_string_literal: true

require "logger"

module Ganger
  # Ruby's Logger, over the pipe: what a handler logs becomes a record of the daemon's log, with pool,
  # worker and the message's correlation id. What is logged outside of one goes where a Logger writes,
  # stderr if it is not told, which the daemon logs too.
  #
  #   logger = Ganger::Logger.new
  #   logger.warn("it is hot")
  #   logger.warn(message: "it is hot", degrees: 90) # the rest of a Hash becomes fields
  class Logger < ::Logger
    LEVELS = %w[debug info warn error error info].freeze
    private_constant :LEVELS

    def initialize(device = $stderr, *rest, **options)
      super
    end

    # What +debug+, +info+, +warn+, +error+, +fatal+ and +unknown+ call.
    def add(severity, message = nil, progname = nil)
      task = Ganger.current_task
      return super unless task&.noted?

      severity ||= UNKNOWN
      return true if severity < level

      progname ||= self.progname
      if message.nil?
        message = block_given? ? yield : progname
        progname = self.progname unless block_given?
      end
      text, fields = parts(message)
      task.log(LEVELS.fetch(severity, "info"), text, target: progname, **fields)
      true
    end
    alias log add

    private

    def parts(message)
      case message
      when String then [message, {}]
      when Hash
        fields = message.transform_keys(&:to_sym)
        text = fields.delete(:message)
        fields.transform_keys! { |name| %i[level target].include?(name) ? :"#{name}_" : name }
        [text.to_s, fields]
      when Exception then [message.full_message(highlight: false), {}]
      else [message.inspect, {}]
      end
    end
  end
end
