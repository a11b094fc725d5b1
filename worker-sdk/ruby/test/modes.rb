# frozen_string_literal: true

# The worker under test: a body's first word says what to do with it. Arguments: the concurrency, and
# frame_bytes_max if it is to be lower than the pool's.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "open3"
require "timeout"

require "ganger/worker"
require_relative "unusual"

LOGGER = Ganger::Logger.new(progname: "shop")
CONCURRENCY = ARGV[0].to_i
MEETING = Mutex.new
MET = ConditionVariable.new
$met = 0
$warmth = "cold"
$last = nil

class Unspeakable < StandardError
  def message
    raise "worse"
  end
end

def meet
  MEETING.synchronize do
    $met += 1
    MET.broadcast
    MET.wait(MEETING, 30) while $met < CONCURRENCY
  end
end

# The child leaves the handler, too; the parent goes on when it is over.
def forked(task, how)
  child = fork
  unless child
    task.log(:info, "said by a child")
    case how
    when "exit" then exit(7)
    when "raise" then raise "in a child"
    when "note" then task.progress("no")
    end
    return
  end
  Process.wait(child)
  task.log(:info, "the child has ended: #{$?.exitstatus}")
end

# Says something about the message before, which is answered.
def late
  $last.log(:warn, "said late", n: 1)
  $last.progress("late")
  begin
    $last.emit("parts", "late")
  rescue RuntimeError => error
    $last.log(:info, "refused: #{error.message}")
  end
end

def fail_somehow(verb, rest)
  case verb
  when "raise" then raise ArgumentError, "no good: \xff #{rest}"
  when "unspeakable" then raise Unspeakable
  when "deep" then fail_somehow(verb, rest)
  when "lacking" then raise NotImplementedError, "not yet"
  when "exit" then exit(3)
  when "thread" then Thread.exit
  end
end

def wait(task, verb, rest)
  case verb
  when "together" then meet
  when "sleep" then sleep(rest.to_f)
  when "stuck"
    task.progress("begun")
    raise "not cancelled" unless task.wait_cancelled(30)

    return Ganger.retry("gave up")
  when "checked"
    task.progress("begun")
    task.check_cancelled
    task.wait_cancelled(30)
    task.check_cancelled
  when "interruptible"
    task.interruptible do
      task.progress("begun")
      sleep(30)
    rescue StandardError
      raise "a plain rescue has it"
    end
  end
  nil
end

def note(task, verb, rest)
  case verb
  when "emit" then rest.to_i.times { |n| task.emit("parts", "part #{n}", headers: { n: }) }
  when "progress" then task.progress(rest || "1 of 2")
  when "count" then task.progress(5)
  when "publish" then task.emit(*PUBLISHED.fetch(rest))
  when "fork" then forked(task, rest)
  when "late" then late
  when "log" then task.log(:debug, "noted", target: "tests", n: 1, many: [1, 2])
  when "logger" then LOGGER.warn(message: "hot stuff", degrees: 90)
  when "noisy"
    # Exceptions that come in the middle of writing leave the stream whole.
    rest.to_i.times do
      Timeout.timeout(0.0005) { 100.times { task.emit("parts", "x" * 50_000) } }
    rescue Timeout::Error
      next
    end
  end
  nil
end

def answer(task, verb, rest)
  case verb
  when "echo" then Ganger.reply(rest)
  when "headers" then Ganger.reply(task.headers.sort.inspect, headers: { n: 7, "ü" => :é }, queue: rest)
  when "about"
    Ganger.reply([task.correlation_id, task.queue, task.attempt, task.milliseconds_left,
                  task.properties.sort].inspect)
  when "retry" then Ganger.retry("later", after: 1.5)
  when "reject" then Ganger.reject("never")
  when "requeue" then Ganger.requeue
  when "done" then Ganger.done
  when "wrong" then 5
  when "unusual" then UNUSUAL.fetch(rest)
  when "warmth" then Ganger.reply($warmth)
  when "large" then Ganger.reply("x" * rest.to_i)
  when "child" then Ganger.reply(Open3.capture2("cat", stdin_data: "").first + `cat`)
  end
end

warm_up = lambda do
  exit(9) if ENV["WARM_UP"] == "exit"
  $warmth = "warm, stdin held #{`cat`.bytesize} bytes"
end

Ganger.run(concurrency: CONCURRENCY, frame_bytes_max: ARGV[1]&.to_i, warm_up:) do |task|
  next Ganger.reply(task.message) if task.message.encoding == Encoding::BINARY

  verb, rest = task.text.split(" ", 2)
  break if verb == "break"

  fail_somehow(verb, rest)
  note(task, verb, rest)
  $last = task
  wait(task, verb, rest) || answer(task, verb, rest || "")
end
