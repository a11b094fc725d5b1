# frozen_string_literal: true

# The worker of ganger's own tests of this library: real daemon, real queue, workers killed. Arguments:
# the concurrency, the version. What it does is in the file $RECORD.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "ganger/worker"

concurrency, version = ARGV
ENV["GANGER_PROTOCOL"] = version
record = File.open(ENV.fetch("RECORD"), "ab", 0o644).tap { |file| file.sync = true }
logger = Ganger::Logger.new(progname: "shop")

note = lambda do |event, task|
  body = task.message.encoding == Encoding::BINARY ? "bytes" : task.message[0, 100]
  micros = Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
  record.syswrite("#{event}\t#{body}\t#{Process.pid}\t#{task.attempt || "-"}\t#{micros}\n")
end

decide = lambda do |task|
  return Ganger.reply(task.message) if task.message.encoding == Encoding::BINARY

  case task.message
  when /\Ashout: / then Ganger.reply(task.text.upcase, headers: { colour: task.headers["colour"] })
  when "raise" then raise ArgumentError, "no good"
  when "retry" then Ganger.retry("later", after: 0.01) if task.attempt == 1
  when "emit" then task.emit("parts", "part", headers: { n: 1 })
  when "log"
    logger.warn(message: "it is hot", degrees: 90)
    task.progress("half way")
  end
end

Ganger.run(concurrency: concurrency.to_i) do |task|
  note.("began", task)
  sleep(0.002)
  outcome = decide.(task)
  note.("done", task)
  outcome
end
