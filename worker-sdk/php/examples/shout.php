<?php

// A first worker: it answers in capitals.

require 'vendor/autoload.php';

use Ganger\{Outcome, Task, Worker};

Worker::run(fn (Task $task) => Outcome::reply(strtoupper($task->message) . '!'));
