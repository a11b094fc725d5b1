<?php

declare(strict_types=1);

// Composer's, for those who have no use for Composer but these tests.
spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Ganger\\')) {
        $file = __DIR__ . '/../src/' . strtr(substr($class, 7), '\\', '/') . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
