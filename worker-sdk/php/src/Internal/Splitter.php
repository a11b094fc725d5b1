<?php

declare(strict_types=1);

namespace Ganger\Internal;

use Ganger\ProtocolError;

/**
 * Cuts a stream of bytes into frames, however they come.
 *
 * @internal
 */
final class Splitter
{
    private string $buffer = '';
    private int $start = 0;

    public function __construct(private readonly int $frameBytesMax)
    {
    }

    /** The frame that the data is, if it is just one and nothing is left of those before: the usual case. */
    public function sole(string $data): ?string
    {
        $size = strlen($data) - 4;
        $isSole = $this->start === strlen($this->buffer)
            && $size > 0 && $size <= $this->frameBytesMax && unpack('N', $data)[1] === $size;
        return $isSole ? substr($data, 4) : null;
    }

    public function feed(string $data): void
    {
        if ($this->start === strlen($this->buffer)) {
            $this->buffer = $data;
        } else {
            if ($this->start > 0) {
                $this->buffer = substr($this->buffer, $this->start);
            }
            $this->buffer .= $data;
        }
        $this->start = 0;
    }

    /** The next frame that is whole, or null; throws for a bad length, once what came before it has been taken. */
    public function shift(): ?string
    {
        $left = strlen($this->buffer) - $this->start;
        if ($left < 4) {
            return null;
        }
        $size = unpack('N', $this->buffer, $this->start)[1];
        if ($size < 1 || $size > $this->frameBytesMax) {
            throw $this->judge($size);
        }
        if ($left < $size + 4) {
            return null;
        }
        $frame = substr($this->buffer, $this->start + 4, $size);
        $this->start += $size + 4;
        return $frame;
    }

    /** What is left of a frame that is not whole. */
    public function rest(): string
    {
        return substr($this->buffer, $this->start);
    }

    private function judge(int $size): ProtocolError
    {
        return new ProtocolError(match (true) {
            $size === 0 => "a frame's length must be 1 or more: 0",
            $size > 0x7fff_ffff => sprintf("a frame's length must not have its top bit set: 0x%x", $size),
            default => "a frame must have at most {$this->frameBytesMax} bytes (run's frameBytesMax): {$size}",
        });
    }
}
