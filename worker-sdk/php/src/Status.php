<?php

declare(strict_types=1);

namespace Ganger;

/** The protocol's numbers. A handler needs none of them: see {@see Outcome}. */
final class Status
{
    public const IGNORE_MESSAGE = -1;
    public const HELLO = 100;
    public const LOG = 101;
    public const PROGRESS = 102;
    public const EMIT = 103;
    public const DONE = 200;
    public const DONE_WITH_REPLY = 201;
    public const REQUEUE = 300;
    public const REJECT = 400;
    public const RETRY = 429;
    public const UNKNOWN_ERROR = 500;
}
