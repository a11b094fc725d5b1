# Runs job classes that were written for Sidekiq: a message is a job as Sidekiq writes it, in JSON.

require "json"
require "msgpack"
require "socket"

require File.expand_path(ARGV.fetch(0)) # what defines the job classes

def work(task)
  job = JSON.parse(task["0"])
  type = Object.const_get(job.fetch("class"))
  return { "0" => "no job class: #{type}", "1" => 400 } unless type.method_defined?(:perform)

  instance = type.new
  instance.jid = job["jid"] if instance.respond_to?(:jid=)
  instance.perform(*job.fetch("args"))
  { "0" => "", "1" => 200 }
rescue NameError, KeyError, JSON::ParserError => error
  { "0" => error.full_message(highlight: false), "1" => instance ? 500 : 400 }
rescue StandardError => error # a failed attempt
  { "0" => error.full_message(highlight: false), "1" => 500 }
end

pipe = UNIXSocket.new(ENV.fetch("GANGER_PIPE"))
while (length = pipe.read(4)) # nil at end of file: ganger needs this worker no more
  answer = work(MessagePack.unpack(pipe.read(length.unpack1("N")))).to_msgpack
  pipe.write([answer.bytesize].pack("N"), answer)
end
