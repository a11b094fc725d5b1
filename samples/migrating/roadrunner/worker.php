<?php
// Works on what RoadRunner's AMQP driver has published: the payload is the body, the rest is in headers.

require $argv[1]; // your handlers: function handle(string $name, string $payload, array $headers): void

function take($pipe, int $size): ?string
{
    $data = '';
    while (strlen($data) < $size) {
        $part = fread($pipe, $size - strlen($data));
        if ($part === '' || $part === false) {
            return null; // end of file: ganger needs this worker no more
        }
        $data .= $part;
    }
    return $data;
}

$pipe = stream_socket_client('unix://' . getenv('GANGER_PIPE'));
while (($length = take($pipe, 4)) !== null) {
    $task = msgpack_unpack(take($pipe, unpack('N', $length)[1]));
    try {
        $headers = json_decode($task['3']['rr_headers'] ?? '{}', true, flags: JSON_THROW_ON_ERROR);
        handle($task['3']['rr_job'] ?? '', $task['0'], $headers ?? []);
        [$status, $message] = [200, ''];
    } catch (DomainException $error) {
        [$status, $message] = [400, (string) $error]; // for good: a dead letter
    } catch (Throwable $error) {
        [$status, $message] = [500, (string) $error]; // tried again
    }
    // By hand, for PHP takes the keys "0" and "1" of an array for numbers.
    $data = "\x82\xa10" . msgpack_pack($message) . "\xa11" . msgpack_pack($status);
    fwrite($pipe, pack('N', strlen($data)) . $data);
}
