<?php

declare(strict_types=1);

// Runs what the files beside it return: tests, by their names. Arguments choose among these by a part of
// the name.

require __DIR__ . '/autoload.php';
require __DIR__ . '/peer.php';

error_reporting(E_ALL);
set_error_handler(static function (int $level, string $message, string $file, int $line): bool {
    return (error_reporting() & $level) !== 0 && throw new ErrorException($message, 0, $level, $file, $line);
});

function same(mixed $wanted, mixed $got, string $about = ''): void
{
    if ($wanted !== $got) {
        $shown = array_map(static fn ($value) => substr(var_export($value, true), 0, 2000), [$wanted, $got]);
        throw new LogicException("{$about}: wanted {$shown[0]}, got {$shown[1]}");
    }
}

function contains(string $part, string $whole): void
{
    str_contains($whole, $part) || throw new LogicException("no {$part} in: " . substr($whole, 0, 2000));
}

/** @param class-string<Throwable> $class */
function throws(string $class, string $part, callable $what, string $about = ''): void
{
    try {
        $what();
    } catch (Throwable $error) {
        same($class, $error::class, "{$about} {$error->getMessage()}");
        contains($part, $error->getMessage());
        return;
    }
    throw new LogicException("{$about}: nothing thrown");
}

$failed = $passed = 0;
foreach (['vectors', 'testing', 'answers', 'process', 'ending'] as $file) {
    foreach (require __DIR__ . "/{$file}.php" as $name => $test) {
        if (isset($argv[1]) && !str_contains("{$file} {$name}", $argv[1])) {
            continue;
        }
        $began = microtime(true);
        try {
            $test();
            $passed++;
            $how = 'ok';
        } catch (Throwable $error) {
            $failed++;
            $how = "FAILED: {$error}";
        }
        printf("%s: %s ... %s (%.2f s)\n", $file, $name, $how, microtime(true) - $began);
    }
}
echo "{$passed} passed, {$failed} failed\n";
exit($failed === 0 && $passed > 0 ? 0 : 1);
