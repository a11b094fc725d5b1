# frozen_string_literal: true

require "fileutils"
require "io/wait"
require "msgpack"
require "open3"
require "rbconfig"
require "securerandom"
require "socket"

# The daemon's side of the protocol, by hand: a real process on a real pipe.
class Peer
  MODES = File.expand_path("modes.rb", __dir__)
  DEADLINE_SECONDS = 60

  attr_reader :pipe, :hello, :stdin

  # The block gets the peer of a worker that is gone afterwards.
  def self.of(*args, **options)
    peer = new(*args, **options)
    yield peer
  ensure
    peer&.close
  end

  def initialize(*args, version: 2, script: MODES, variables: {})
    name = SecureRandom.hex(16)
    path = "/tmp/CoreFxPipe_#{name}"
    env = { "GANGER_PROTOCOL" => nil, "GANGER_PIPE" => nil, **variables }
    env.update("GANGER_PROTOCOL" => "2", "GANGER_PIPE" => path) if version == 2
    UNIXServer.open(path) do |listener|
      @stdin, @stdout, @stderr, @process =
        Open3.popen3(env, RbConfig.ruby, "-w", script, *args.map(&:to_s))
      # What is next on stdin is not part of the first line, though it comes with it.
      tell("#{name}\n__of_a_newer_daemon__ 1")
      raise "no worker: #{@stderr.read}" unless listener.wait_readable(DEADLINE_SECONDS)

      @pipe = listener.accept
    end
    @hello = receive if version == 2
  ensure
    FileUtils.rm_f(path)
  end

  def close
    Process.kill(:KILL, @process.pid) if @process.alive?
    [@stdin, @stdout, @stderr, @pipe].each(&:close)
    @process.join
  end

  def tell(line)
    @stdin.write("#{line}\n")
    @stdin.flush
  end

  def send(body, id = 1, **fields)
    @pipe.write(frame(task(body, id, **fields)))
  end

  def receive
    MessagePack.unpack(read(read(4).unpack1("N")))
  end

  def ask(body, id = 1, **fields)
    send(body, id, **fields)
    receive
  end

  # Sends one that says when it is in hand.
  def begin(body, id = 1, **fields)
    begun = ask(body, id, **fields)
    raise "not begun: #{begun}" unless begun["0"] == "begun"
  end

  # The exit code; the pipe holds nothing more.
  def ended
    code = exit_code
    raise "something is left in the pipe" unless @pipe.read.empty?

    code
  end

  def exit_code
    raise "it has not ended" unless @process.join(DEADLINE_SECONDS)

    @process.value.exitstatus
  end

  def stderr
    @stderr.read
  end

  def task(body, id, **fields)
    { "0" => body, "1" => "", "2" => "q", "3" => {}, "4" => id, "5" => 1, "6" => nil, "7" => {} }
      .merge(fields.to_h { |name, value| [name.to_s.delete_prefix("_"), value] })
  end

  def frame(output)
    data = MessagePack.pack(output)
    [data.bytesize].pack("N") << data
  end

  private

  def read(size)
    data = +""
    while data.bytesize < size
      raise "nothing from the worker" unless @pipe.wait_readable(DEADLINE_SECONDS)

      data << @pipe.readpartial(size - data.bytesize)
    end
    data
  end
end
