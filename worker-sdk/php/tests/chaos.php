<?php

declare(strict_types=1);

// The worker of ganger's own tests of this library: real daemon, real queue, workers killed. Arguments:
// the concurrency, the version. What it does is in the file $RECORD.

use Ganger\{Logger, Outcome, Task, Worker};

require __DIR__ . '/autoload.php';
require 'Psr/Log/autoload.php';

[, $concurrency, $version] = $argv;
putenv("GANGER_PROTOCOL={$version}");
$record = fopen(getenv('RECORD'), 'a');

$note = static function (string $event, Task $task) use ($record): void {
    $body = $task->isBinary ? 'bytes' : preg_replace('/^(.{0,100}).*/su', '$1', $task->message);
    $attempt = $task->attempt ?? '-';
    fwrite($record, sprintf("%s\t%s\t%d\t%s\t%d\n", $event, $body, getmypid(), $attempt, microtime(true) * 1e6));
};

$decide = static function (Task $task): ?Outcome {
    if ($task->isBinary) {
        return Outcome::reply($task->message);
    }
    if (str_starts_with($task->message, 'shout: ')) {
        return Outcome::reply(strtoupper($task->message), ['colour' => $task->headers['colour']]);
    }
    switch ($task->message) {
        case 'raise':
            throw new RuntimeException('no good');
        case 'retry':
            return $task->attempt === 1 ? Outcome::retry('later', after: 0.01) : null;
        case 'emit':
            $task->emit('parts', 'part', ['n' => 1]);
            break;
        case 'log':
            (new Logger('shop'))->warning('it is hot', ['degrees' => 90]);
            $task->progress('half way');
    }
    return null;
};

Worker::run(static function (Task $task) use ($note, $decide): ?Outcome {
    $note('began', $task);
    $task->wait(0.002);
    $outcome = $decide($task);
    $note('done', $task);
    return $outcome;
}, (int) $concurrency);
