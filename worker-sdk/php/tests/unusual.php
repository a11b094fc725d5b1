<?php

declare(strict_types=1);

// What a handler might return or publish, though it is no string, or can't be sent.

use Ganger\Outcome;

/** @return array<string, Closure(): Outcome> */
function unusual(): array
{
    $circular = new stdClass();
    $circular->self = $circular;
    $date = new DateTimeImmutable('@0');
    return [
        'object' => static fn () => Outcome::reply(['a' => [1, 'ü', null, 1.0]]),
        'typed' => static fn () => Outcome::reply([1], ['Content-Type' => 'text/x']),
        'number' => static fn () => Outcome::reply(5),
        'null' => static fn () => Outcome::reply(null),
        'headers' => static fn () => Outcome::reply('x', ['a' => ['b' => [1]], 'n' => 1.5, 'when' => $date]),
        'reason' => static fn () => Outcome::reject(new TypeError("odd \xff")),
        'nan' => static fn () => Outcome::reply(NAN),
        'circle' => static fn () => Outcome::reply($circular),
        'bytes' => static fn () => Outcome::reply(["\xff"]),
        'stream' => static fn () => Outcome::reply(STDERR),
        'closure' => static fn () => Outcome::reply(static fn () => 5),
        'value' => static fn () => Outcome::reply('x', ['h' => [NAN]]),
        'many' => static fn () => Outcome::reply('x', array_fill(0, 10_001, '')),
        'queue' => static fn () => Outcome::reply('x', queue: 5),
        'name' => static fn () => Outcome::reply('x', queue: "\xff"),
        'note' => static fn () => new Outcome(102),
        'after' => static fn () => new Outcome(429, afterMs: -1),
    ];
}

/** @return array<string, array<mixed>> what becomes of those that can be sent */
function sent(): array
{
    $json = ['content-type' => 'application/json'];
    return [
        'object' => [0 => '{"a":[1,"ü",null,1.0]}', 1 => 201, 2 => $json],
        'typed' => [0 => '[1]', 1 => 201, 2 => ['Content-Type' => 'text/x']],
        'number' => [0 => '5', 1 => 201, 2 => $json],
        'null' => [0 => '', 1 => 201],
        'headers' => [0 => 'x', 1 => 201, 2 => ['a' => '{"b":[1]}', 'n' => 1.5, 'when' => '1970-01-01T00:00:00.000+00:00']],
        'reason' => [0 => "TypeError: odd \u{fffd}", 1 => 400],
    ];
}

/** @return array<string, string> what is said of the others */
function refused(): array
{
    $body = 'a message must be text, bytes or what JSON has: ';
    return [
        'nan' => $body,
        'circle' => $body,
        'bytes' => $body,
        'stream' => $body,
        'closure' => $body,
        'value' => "the header 'h' must be text, bytes or what JSON has: ",
        'many' => 'at most 10000 headers: 10001',
        'queue' => 'must be of type ?string, int given',
        'name' => "a queue's name must be UTF-8",
        'note' => "an answer's status must be one that ends the message: 102",
        'after' => 'afterMs must be a whole number from 0: -1',
    ];
}

/** @return array<mixed> what to emit */
function published(string $name): array
{
    return ['object' => ['parts', ['a' => 1]], 'queue' => [5, 'x'], 'nan' => ['parts', NAN]][$name];
}
