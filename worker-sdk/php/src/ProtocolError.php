<?php

declare(strict_types=1);

namespace Ganger;

/** The daemon, or what pretends to be one, has sent what the protocol forbids. */
final class ProtocolError extends \RuntimeException
{
}
