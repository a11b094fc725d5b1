# A first worker: it answers in capitals.

require "ganger/worker"

Ganger.run(concurrency: 4) do |task|
  Ganger.reply("#{task.text.upcase}!")
end
