# frozen_string_literal: true

# A worker for ganger.

require_relative "greet"

Ganger.run(&GREET)
