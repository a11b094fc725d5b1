<?php

declare(strict_types=1);

// What the library uses of OpenTelemetry's API, which no package of Debian's brings.

namespace OpenTelemetry\API;

final class Globals
{
    public static ?string $active = null;
    private ?string $trace = null;

    public static function propagator(): self
    {
        return new self();
    }

    /** @param array<string, string> $carrier */
    public function extract(array $carrier): self
    {
        $this->trace = explode('-', $carrier['traceparent'])[1];
        return $this;
    }

    public function activate(): self
    {
        self::$active = $this->trace;
        return $this;
    }

    public function detach(): void
    {
        self::$active = null;
    }
}
