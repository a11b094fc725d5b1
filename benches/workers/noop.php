<?php

// A worker that does nothing; its argument is how many tasks at once.

require __DIR__ . '/../../worker-sdk/php/tests/autoload.php';

Ganger\Worker::run(fn () => null, (int) $argv[1]);
