<?php
// Puts a message into a table queue, in the transaction of a row of its own.

$correlationId = bin2hex(random_bytes(16));
$headers = ['tenant' => 'blue', 'traceparent' => getenv('TRACEPARENT')];
$db = new PDO('sqlite:' . (getenv('DATABASE') ?: 'ganger.db'), options: [
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
    PDO::ATTR_TIMEOUT => 10,
]);
$db->exec('PRAGMA synchronous = FULL'); // or a power cut may take back what was sent
$db->exec('BEGIN IMMEDIATE'); // what is not committed is rolled back at the end
$db->exec("INSERT INTO orders (id, state) VALUES (17, 'new')");
$db->prepare(
    "INSERT INTO consumer_messages
       (queue, body, headers, correlation_id, reply_to, message_id, content_type)
     VALUES ('orders', ?, ?, ?, 'orders.replies', ?, 'application/json')"
)->execute(['{"order": 17}', json_encode($headers), $correlationId, bin2hex(random_bytes(16))]);
$db->exec('COMMIT');
echo "$correlationId\n";
