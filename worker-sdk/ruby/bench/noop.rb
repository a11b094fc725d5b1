# frozen_string_literal: true

# What the library costs: tasks that do nothing, beside a loop written by hand, in one run.
#
# ruby bench/noop.rb [ROUNDS] prints, for one message at a time and for many, the processor time that a
# message takes and the median of the ratios library / by hand. In each round both are started, and then
# take short turns, so that what else the machine does meets both. The loop by hand is what the protocol
# asks of a worker at the least: it judges a frame's length, calls a handler, and answers 500 if that raises.

require "io/wait"
require "msgpack"
require "rbconfig"
require "socket"

TURNS = 40
MESSAGES = 1000 # in each turn
FRAME_BYTES_MAX = 64 << 20
# How many are in the pipe at once.
KINDS = { "one" => 1, "many" => 64 }.freeze
THREADS = 8

def hello(concurrency)
  data = MessagePack.pack({ "0" => "", "1" => 100,
                            "2" => { "sdk" => "none", "version" => "0", "concurrency" => concurrency.to_s } })
  [data.bytesize].pack("N") + data
end

def read_frame(pipe)
  length = pipe.read(4) or return
  size = length.unpack1("N")
  raise "a frame of #{size} bytes" unless size.between?(1, FRAME_BYTES_MAX)

  pipe.read(size)
end

def answer_to(frame, &handler)
  task = MessagePack.unpack(frame)
  begin
    handler.call(task)
    answer = { "0" => "", "1" => 200, "4" => task["4"] }
  rescue StandardError => error
    answer = { "0" => error.message, "1" => 500, "4" => task["4"] }
  end
  data = MessagePack.pack(answer)
  [data.bytesize].pack("N") + data
end

def one_by_hand(pipe, &handler)
  pipe.write(hello(1))
  while (frame = read_frame(pipe))
    pipe.write(answer_to(frame, &handler))
  end
end

def many_by_hand(pipe, &handler)
  pipe.write(hello(KINDS["many"]))
  frames = Queue.new
  lock = Mutex.new
  threads = Array.new(THREADS) do
    Thread.new do
      while (frame = frames.pop)
        data = answer_to(frame, &handler)
        lock.synchronize { pipe.write(data) }
      end
    end
  end
  while (frame = read_frame(pipe))
    frames << frame
  end
  frames.close
  threads.each(&:join)
end

def worker(kind, way)
  if way == "library"
    $LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
    require "ganger/worker"
    Ganger.run(concurrency: kind == "one" ? 1 : THREADS) { nil }
    return
  end
  $stdin.gets
  pipe = UNIXSocket.new(ENV.fetch("GANGER_PIPE"))
  kind == "one" ? one_by_hand(pipe) { nil } : many_by_hand(pipe) { nil }
end

# A worker, and what its messages take.
class Measured
  # Milliseconds from the start to the HELLO.
  attr_reader :start

  def initialize(kind, way)
    @ahead = KINDS[kind]
    path = "/tmp/ganger-bench-#{Process.pid}"
    UNIXServer.open(path) do |listener|
      began = now
      input, @stdin = IO.pipe
      env = { "GANGER_PROTOCOL" => "2", "GANGER_PIPE" => path }
      @pid = spawn(env, RbConfig.ruby, __FILE__, "worker", kind, way, in: input)
      @stdin.puts("pipe")
      @pipe = listener.accept
      @pipe.wait_readable
      @start = (now - began) * 1000
    end
    turn
  ensure
    File.delete(path) if path && File.exist?(path)
  end

  # Microseconds of processor time a message.
  def turn
    before = processor_seconds(@pid)
    exchange(@pipe, MESSAGES, @ahead)
    (processor_seconds(@pid) - before) / MESSAGES * 1e6
  end

  # Returns the MiB of memory that it has had.
  def end
    memory = File.read("/proc/#{@pid}/status")[/VmRSS:\s+(\d+)/, 1].to_i
    [@pipe, @stdin].each(&:close)
    Process.wait(@pid)
    raise "a worker has failed" unless $?.success?

    memory / 1024.0
  end
end

# To one processor: whether a message wakes up another one weighs more than all that is compared here.
def pin
  first = File.read("/proc/self/status")[/^Cpus_allowed_list:\s+(\d+)/, 1]
  system("taskset", "-apc", first, Process.pid.to_s, out: File::NULL, exception: true)
end

# The threads' own clock, in nanoseconds: ticks are too coarse.
def processor_seconds(pid)
  Dir["/proc/#{pid}/task/*/schedstat"].sum { |file| File.read(file).split.first.to_i } / 1e9
end

def exchange(pipe, count, ahead)
  inputs = Array.new(count) do |id|
    data = MessagePack.pack({ "0" => "hello", "1" => "", "2" => "work", "3" => {}, "4" => id, "5" => 1,
                              "6" => nil, "7" => { "row_id" => id } })
    [data.bytesize].pack("N") + data
  end
  in_flight = 0
  buffer = +""
  until inputs.empty? && in_flight.zero?
    heap = inputs.shift(ahead - in_flight)
    in_flight += heap.size
    pipe.write(heap.join) unless heap.empty?
    buffer << pipe.readpartial(1 << 16)
    while buffer.bytesize >= 4 && buffer.bytesize >= (length = 4 + buffer.unpack1("N"))
      in_flight -= 1 if buffer.byteslice(0, length).include?("\xa11\xcc\xc8".b)
      buffer = buffer.byteslice(length..)
    end
  end
end

def median(list)
  list.sort[list.size / 2]
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

def main(rounds)
  pin
  KINDS.each_key do |kind|
    costs = { "library" => [], "by hand" => [] }
    starts = { "library" => [], "by hand" => [] }
    memory = { "library" => [], "by hand" => [] }
    rounds.times do
      workers = costs.keys.to_h { |way| [way, Measured.new(kind, way)] }
      TURNS.times { workers.each { |way, measured| costs[way] << measured.turn } }
      workers.each do |way, measured|
        starts[way] << measured.start
        memory[way] << measured.end
      end
    end
    shown = costs.map do |way, cost|
      format("%s %.1f µs (start %.0f ms, %.1f MiB)", way, *[cost, starts[way], memory[way]].map { |all| median(all) })
    end
    ratio = median(costs["library"].zip(costs["by hand"]).map { |library, hand| library / hand })
    puts "#{kind}: #{shown.join(", ")}, ratio #{format("%.2f", ratio)}"
  end
end

ARGV[0] == "worker" ? worker(ARGV[1], ARGV[2]) : main((ARGV[0] || 5).to_i)
