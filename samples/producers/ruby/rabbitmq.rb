# Sends a message to RabbitMQ and ends when the broker has it.

require "bunny"
require "securerandom"

correlation_id = SecureRandom.uuid
connection = Bunny.new(ENV.fetch("AMQP_URL", "amqp://localhost"), automatically_recover: false).start
channel = connection.create_channel
channel.confirm_select
exchange = channel.default_exchange
returned = nil
exchange.on_return { |info, _properties, _body| returned = info.reply_text }
exchange.publish(
  '{"order": 17}',
  routing_key: "orders",
  persistent: true,
  mandatory: true, # without the queue it comes back, before it is confirmed
  content_type: "application/json",
  message_id: SecureRandom.uuid,
  correlation_id: correlation_id,
  reply_to: "orders.replies",
  headers: { "tenant" => "blue", "traceparent" => ENV.fetch("TRACEPARENT") }
)
abort "not sent: the broker did not take it" unless channel.wait_for_confirms
abort "not sent: #{returned}" if returned
connection.close
puts correlation_id
