<?php

declare(strict_types=1);

namespace Ganger;

use Psr\Log\AbstractLogger;

/**
 * A PSR-3 logger, where psr/log is installed: what a handler logs becomes a record of the daemon's log, with
 * pool, worker and the message's correlation id. What of the context the message does not name becomes its
 * fields. What is logged outside of a handler goes to stderr, which the daemon logs too.
 */
final class Logger extends AbstractLogger
{
    private const LEVELS = [
        'emergency' => 'error',
        'alert' => 'error',
        'critical' => 'error',
        'error' => 'error',
        'warning' => 'warn',
        'notice' => 'info',
        'info' => 'info',
        'debug' => 'debug',
    ];

    /** @param string $name what the records come from, such as a channel's name */
    public function __construct(private readonly string $name = '')
    {
    }

    /**
     * @param mixed $level one of {@see \Psr\Log\LogLevel}
     * @param string|\Stringable $message
     * @param array<mixed> $context
     */
    public function log($level, $message, array $context = []): void
    {
        [$text, $fields] = self::interpolated((string) $message, $context);
        $fields = ['level' => self::LEVELS[(string) $level] ?? 'info'] + ['target' => $this->name] + $fields;
        if ($this->name === '') {
            unset($fields['target']);
        }
        $task = Task::current();
        if ($task !== null && $task->canNote()) {
            $task->log($fields['level'], $text, $fields);
            return;
        }
        file_put_contents('php://stderr', rtrim("{$level} {$this->name}") . ": {$text}\n");
    }

    /**
     * @param array<mixed> $context
     * @return array{string, array<mixed>}
     */
    private static function interpolated(string $message, array $context): array
    {
        $values = [];
        foreach ($context as $name => $value) {
            $value = $value instanceof \DateTimeInterface ? $value->format(\DateTimeInterface::RFC3339_EXTENDED) : $value;
            if (!is_scalar($value) && !$value instanceof \Stringable) {
                continue;
            }
            if (str_contains($message, "{{$name}}")) {
                $values["{{$name}}"] = is_bool($value) ? json_encode($value) : (string) $value;
                unset($context[$name]);
            }
        }
        return [strtr($message, $values), $context];
    }
}
