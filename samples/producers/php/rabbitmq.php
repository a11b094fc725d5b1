<?php
// Sends a message to RabbitMQ and ends when the broker has it.

require 'vendor/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

$correlationId = bin2hex(random_bytes(16));
$url = array_map('urldecode', parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@localhost:5672/%2f'));
$connection = new AMQPStreamConnection(
    $url['host'], (int) $url['port'], $url['user'], $url['pass'], substr($url['path'], 1)
);
$channel = $connection->channel();
$channel->confirm_select();
$channel->set_nack_handler(fn () => throw new RuntimeException('not sent: the broker did not take it'));
$channel->set_return_listener(fn ($code, $text) => throw new RuntimeException("not sent: $text"));
$message = new AMQPMessage('{"order": 17}', [
    'delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT,
    'content_type' => 'application/json',
    'message_id' => bin2hex(random_bytes(16)),
    'correlation_id' => $correlationId,
    'reply_to' => 'orders.replies',
    'application_headers' => new AMQPTable(['tenant' => 'blue', 'traceparent' => getenv('TRACEPARENT')]),
]);
$mandatory = true; // without the queue it comes back, before it is confirmed
$channel->basic_publish($message, '', 'orders', $mandatory);
$channel->wait_for_pending_acks_returns(30); // throws if there is no answer
$connection->close();
echo "$correlationId\n";
