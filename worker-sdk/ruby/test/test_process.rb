# frozen_string_literal: true

require "minitest/autorun"

require_relative "peer"

# Real worker processes, with a daemon by hand on the other side.
class TestProcess < Minitest::Test
  MIB = 1 << 20

  def test_hello_names_the_library_and_how_much_it_takes
    Peer.of(7) do |peer|
      assert_equal %w[0 1 2], peer.hello.keys
      assert_equal ["", 100], peer.hello.values_at("0", "1")
      assert_equal %w[ganger-ruby 0.1.0 7], peer.hello["2"].values_at("sdk", "version", "concurrency")
    end
  end

  def test_outcomes
    Peer.of(1) do |peer|
      { "" => { "0" => "", "1" => 200 },
        "done" => { "0" => "", "1" => 200 },
        "echo Grüße 漢 🦀" => { "0" => "Grüße 漢 🦀", "1" => 201 },
        "retry" => { "0" => "later", "1" => 429, "5" => 1500 },
        "reject" => { "0" => "never", "1" => 400 },
        "requeue" => { "0" => "", "1" => 300 } }.each do |body, answer|
        assert_equal answer.merge("4" => 9), peer.ask(body, 9)
      end
    end
  end

  def test_all_of_a_message_and_of_a_reply
    Peer.of(1) do |peer|
      answer = peer.ask("headers answers", 0, _3: { "b" => "", "a" => "ä" })
      assert_equal '[["a", "ä"], ["b", ""]]', answer["0"]
      assert_equal [{ "n" => 7, "ü" => "é" }, "answers", 0], answer.values_at("2", "3", "4")
      last = (1 << 64) - 1
      properties = { "row_id" => 4, "key" => "\xff".b }
      answer = peer.ask("about", last, _1: "c", _5: 3, _6: 5000, _7: properties)
      assert_equal ['["c", "q", 3, 5000, [["key", "\xFF"], ["row_id", 4]]]', last], answer.values_at("0", "4")
    end
  end

  def test_a_handler_that_raises_answers_500_and_goes_on
    Peer.of(1) do |peer|
      answer = peer.ask("raise x")
      assert_equal [500, 1], answer.values_at("1", "4")
      first, *stack = answer["0"].lines(chomp: true)
      assert_equal "ArgumentError: no good: ? x", first
      assert_includes stack.join, "modes.rb"
      { "wrong" => "must return an Outcome",
        "deep" => "SystemStackError", "lacking" => "NotImplementedError: not yet",
        "unspeakable" => "Unspeakable, whose text raises" }.each do |body, reason|
        answer = peer.ask(body)
        assert_equal 500, answer["1"], body
        assert_includes answer["0"], reason
      end
      assert_equal "x", peer.ask("echo x")["0"]
    end
  end

  def test_a_reply_that_the_daemon_would_refuse_is_a_failure
    Peer.of(1, 4096) do |peer|
      answer = peer.ask("large 5000")
      assert_equal 500, answer["1"]
      assert_includes answer["0"], "at most 4096 bytes: 50"
      assert_equal 4000, peer.ask("large 4000")["0"].length
    end
  end

  def test_large_empty_and_binary_bodies
    Peer.of(1) do |peer|
      large = "ü" * (5 * MIB)
      assert_equal large, peer.ask("echo #{large}")["0"]
      binary = (0..255).to_a.pack("C*") * (10 * MIB / 256)
      assert_equal binary, peer.ask(binary)["0"]
      assert_equal Encoding::BINARY, peer.ask("\xff".b)["0"].encoding
      assert_equal ["", Encoding::UTF_8], peer.ask("echo ")["0"].then { |body| [body, body.encoding] }
    end
  end

  def test_frames_in_dribbles_and_heaps
    Peer.of(100) do |peer|
      peer.frame(peer.task("echo slow", 1)).each_byte { |byte| peer.pipe.write(byte.chr) }
      assert_equal "slow", peer.receive["0"]
      heap = Array.new(100) { |n| peer.frame(peer.task("echo #{n}", n)) }.join
      peer.pipe.write(heap[..-6])
      peer.pipe.write(heap[-5..])
      answers = Array.new(100) { peer.receive }.to_h { |answer| answer.values_at("4", "0") }
      assert_equal (0...100).to_h { |n| [n, n.to_s] }, answers
    end
  end

  def test_many_at_once
    Peer.of(8) do |peer|
      8.times { |n| peer.send("together", n) }
      assert_equal (0...8).to_a, Array.new(8) { peer.receive["4"] }.sort
    end
  end

  def test_a_slow_one_holds_up_no_other
    Peer.of(2) do |peer|
      peer.begin("stuck", 1)
      (2...200).each { |n| assert_equal n, peer.ask("echo x", n)["4"] }
      peer.tell("__cancel__ 1")
      assert_equal({ "0" => "gave up", "1" => 429, "4" => 1 }, peer.receive)
    end
  end

  def test_notes_go_out_before_the_answer
    Peer.of(1) do |peer|
      peer.send("emit 300", 5)
      300.times do |n|
        assert_equal({ "0" => "part #{n}", "1" => 103, "2" => { "n" => n }, "3" => "parts", "4" => 5 }, peer.receive)
      end
      assert_equal 200, peer.receive["1"]
      log = { "level" => "debug", "target" => "tests", "n" => 1, "many" => "[1, 2]" }
      logger = { "level" => "warn", "target" => "shop", "degrees" => 90 }
      { "progress" => { "0" => "1 of 2", "1" => 102, "4" => 1 },
        "log" => { "0" => "noted", "1" => 101, "2" => log, "4" => 1 },
        "logger" => { "0" => "hot stuff", "1" => 101, "2" => logger, "4" => 1 } }.each do |body, note|
        assert_equal note, peer.ask(body)
        assert_equal 200, peer.receive["1"]
      end
    end
  end

  def test_what_interrupts_a_handler_leaves_the_stream_whole
    Peer.of(2) do |peer|
      peer.send("noisy 100", 1)
      seen = peer.receive while seen.nil? || seen["1"] == 103
      assert_equal({ "0" => "", "1" => 200, "4" => 1 }, seen)
    end
  end

  def test_cancel
    [1, 2].each do |concurrency|
      Peer.of(concurrency) do |peer|
        { "stuck" => "gave up", "checked" => "cancelled", "interruptible" => "cancelled" }.each do |body, reason|
          peer.begin(body, 3)
          peer.tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3")
          answer = peer.receive
          assert_equal [reason, 429, 3], [answer["0"].lines(chomp: true).first, *answer.values_at("1", "4")]
          # What was raised brings its stack along.
          assert_equal reason == "cancelled", answer["0"].include?("modes.rb")
        end
        # One that overtakes its message: stdin and the pipe have no common order.
        peer.tell("__cancel__ 4")
        peer.begin("stuck", 4)
        assert_equal 429, peer.receive["1"]
        assert_equal "on", peer.ask("echo on", 5)["0"]
      end
    end
  end

  def test_quit_when_idle
    [1, 3].each do |concurrency|
      Peer.of(concurrency) do |peer|
        peer.ask("echo x")
        peer.tell("__quit__")
        assert_equal 0, peer.ended
      end
    end
  end

  def test_quit_when_busy
    Peer.of(2) do |peer|
      peer.begin("stuck", 1)
      peer.send("sleep 0.2", 2)
      peer.tell("__quit__")
      assert_equal({ "0" => "", "1" => 200, "4" => 2 }, peer.receive)
      peer.tell("__cancel__ 1")
      assert_equal 429, peer.receive["1"]
      assert_equal 0, peer.ended
    end
  end

  def test_the_end_of_the_pipe_and_of_stdin
    [->(peer) { peer.pipe.close_write }, ->(peer) { peer.stdin.close }].each do |close|
      Peer.of(1) do |peer|
        peer.send("sleep 0.1")
        close.(peer)
        assert_equal 200, peer.receive["1"]
        assert_equal 0, peer.ended
      end
    end
  end

  def test_a_daemon_that_is_gone_is_no_error
    Peer.of(1) do |peer|
      peer.send("sleep 0.1")
      peer.pipe.close
      assert_equal ["", 0], [peer.stderr, peer.exit_code]
    end
  end

  def test_what_a_worker_does_not_know_it_ignores
    Peer.of(1) do |peer|
      peer.tell("__context_switch__\n\n__unheard__ of")
      assert_equal "x", peer.ask("echo x", 1, _8: { "new" => [1] }, more: "\xff".b)["0"]
    end
  end

  def test_a_hostile_input_ends_the_connection
    [1, 2].each do |concurrency|
      [[->(peer) { peer.frame({ "0" => "m" }) }, 'no "1"'],
       [->(_) { "\x7f\xff\xff\xff".b }, "at most 67108864 bytes"]].each do |bytes, reason|
        Peer.of(concurrency) do |peer|
          peer.pipe.write(bytes.(peer))
          assert_equal 1, peer.ended
          assert_includes peer.stderr, reason
        end
      end
    end
  end

  def test_a_handler_that_ends_the_worker_answers_first
    { ["exit", 1] => [3, "exit"], ["exit", 2] => [3, "exit"], ["break", 1] => [0, "use next"],
      ["thread", 2] => [1, "left without an outcome"] }.each do |(body, concurrency), (code, reason)|
      Peer.of(concurrency) do |peer|
        answer = peer.ask(body)
        assert_equal 500, answer["1"], body
        assert_includes answer["0"], reason
        assert_equal code, peer.ended, body
      end
    end
    Peer.of(2) do |peer|
      assert_includes peer.ask("break")["0"], "LocalJumpError"
      assert_equal "on", peer.ask("echo on")["0"]
    end
  end

  def test_child_processes_can_not_read_the_control_lines
    Peer.of(1) do |peer|
      assert_equal "", peer.ask("child")["0"]
      peer.tell("__quit__")
      assert_equal 0, peer.ended
    end
  end

  # -- version 1 --

  def test_version_1
    Peer.of(8, version: 1) do |peer|
      # Ahead of the answers, as `pipeline` does it; the answers are in order.
      inputs = Array.new(200) { |n| peer.frame(peer.task("echo #{n}", n).slice("0", "1", "2", "3")) }
      peer.pipe.write(inputs.join)
      200.times { |n| assert_equal({ "0" => n.to_s, "1" => 201 }, peer.receive) }
      assert_equal({ "0" => "1 of 2", "1" => -1 }, peer.ask("progress"))
      [peer.receive, peer.ask("log"), peer.ask("logger")].each do |answer|
        assert_equal({ "0" => "", "1" => 200 }, answer)
      end
      answer = peer.ask("emit 1")
      assert_equal 500, answer["1"]
      assert_includes answer["0"], "version 2"
      peer.tell("__quit__")
      assert_equal 0, peer.ended
      stderr = peer.stderr
      assert_includes stderr, "debug: noted target=tests n=1"
      assert_match(/WARN -- shop: .*hot stuff/, stderr)
    end
  end

  def test_version_1_gives_up_by_itself_and_yields_when_told
    Peer.of(1, version: 1) do |peer|
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      peer.begin("stuck", 1, _3: { "TimeoutMilliseconds" => "100" })
      assert_equal({ "0" => "gave up", "1" => 429 }, peer.receive)
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, :>, 0.09
      %w[-1 soon 99999999999999999999999].each do |timeout|
        assert_equal "x", peer.ask("echo x", _3: { "TimeoutMilliseconds" => timeout })["0"]
      end
      peer.begin("stuck")
      peer.tell("__context_switch__")
      assert_equal "gave up", peer.receive["0"]
    end
  end
end
