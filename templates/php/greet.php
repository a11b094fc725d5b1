<?php

declare(strict_types=1);

use Ganger\{Outcome, Task};

/** What the worker does: it greets whoever is named in the message. */
function greet(Task $task): Outcome
{
    if ($task->message === '') {
        return Outcome::reject('nobody to greet'); // never tried again: a dead letter
    }
    return Outcome::reply("Hello, {$task->message}!");
}
