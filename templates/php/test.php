<?php

// The handler in a real worker, without a daemon.

declare(strict_types=1);

require __DIR__ . '/vendor/autoload.php';

use Ganger\Testing\Harness;

$results = Harness::work(greet(...), ['world', '']);
$told = array_map(fn ($result) => [$result->status, $result->message], $results);
$wanted = [[201, 'Hello, world!'], [400, 'nobody to greet']];
if ($told !== $wanted) {
    throw new RuntimeException('the handler said ' . json_encode($told));
}
echo count($told), " passed\n";
