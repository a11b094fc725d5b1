# frozen_string_literal: true

module Ganger
  # The context of a message's +traceparent+, where the application has loaded OpenTelemetry.
  module Tracing # :nodoc:
    module_function

    def within(headers, &block)
      return yield unless headers.key?("traceparent") && defined?(::OpenTelemetry::Context)

      context = ::OpenTelemetry.propagation.extract(headers)
      ::OpenTelemetry::Context.with_current(context, &block)
    end
  end
end
