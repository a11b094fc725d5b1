<?php

// A worker for ganger.

declare(strict_types=1);

require __DIR__ . '/vendor/autoload.php';

Ganger\Worker::run(greet(...));
