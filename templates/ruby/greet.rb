# frozen_string_literal: true

require "ganger/worker"

# What the worker does: it greets whoever is named in the message.
GREET = lambda do |task|
  next Ganger.reject("nobody to greet") if task.text.empty? # never tried again: a dead letter

  Ganger.reply("Hello, #{task.text}!")
end
