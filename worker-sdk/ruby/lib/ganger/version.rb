# frozen_string_literal: true

module Ganger
  # What the daemon is told at the start, and the gem's own version.
  VERSION = "0.1.0"
end
