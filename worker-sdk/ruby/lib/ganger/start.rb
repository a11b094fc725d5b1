# frozen_string_literal: true

module Ganger
  # The start of a worker: from the pipe's name on stdin to a connection.
  module Start # :nodoc:
    LINE_BYTES_MAX = 1 << 16

    module_function

    # The pipe's name, which stdin begins with, and a file for the control lines to come, which child
    # processes do not inherit. Stdin itself is empty from here on, so that neither a handler nor its child
    # processes can eat such a line.
    def take
      if $stdin.tty?
        abort "this is a worker of ganger, which starts it and writes a pipe's name to its stdin: " \
              "put it into a [[pools]] section, or try it with Ganger::Testing"
      end
      name = first_line
      abort "stdin must begin with a line that names the pipe: it has ended" if name.empty?

      control = STDIN.dup
      STDIN.reopen(File::NULL)
      [name, control]
    end

    # The pipe of that name.
    def connect(name)
      UNIXSocket.new(path(name))
    end

    # The longest frame: the daemon's limit, or a lower one that is asked for.
    def frame_bytes_max(wanted)
      told = ENV["GANGER_FRAME_BYTES_MAX"].to_s[/\A\d+\z/]&.to_i
      [wanted, told].compact.min || Wire::FRAME_BYTES_MAX
    end

    # Byte by byte: what follows is for others.
    def first_line
      line = String.new
      while line.bytesize < LINE_BYTES_MAX && (byte = STDIN.sysread(1)) != "\n"
        line << byte
      end
      line.chomp("\r")
    rescue EOFError
      line
    end

    def path(name)
      told = ENV["GANGER_PIPE"].to_s
      return told unless told.empty?

      below = ENV["TMPDIR"].to_s
      there = File.join(below, "CoreFxPipe_#{name}")
      below.empty? || !File.exist?(there) ? "/tmp/CoreFxPipe_#{name}" : there
    end
  end
end
