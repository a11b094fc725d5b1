# A worker that does nothing; its argument is how many tasks at once.

require "ganger/worker"

Ganger.run(concurrency: Integer(ARGV.first)) { nil }
