<?php

declare(strict_types=1);

namespace Ganger\Internal;

/**
 * OpenTelemetry's context, taken from a message's `traceparent` where its API is installed.
 *
 * @internal
 */
final class Tracing
{
    /** @param array<string, string> $headers */
    public static function within(array $headers, \Closure $work): mixed
    {
        if (!isset($headers['traceparent']) || !class_exists(\OpenTelemetry\API\Globals::class)) {
            return $work();
        }
        $scope = \OpenTelemetry\API\Globals::propagator()->extract($headers)->activate();
        try {
            return $work();
        } finally {
            $scope->detach();
        }
    }
}
