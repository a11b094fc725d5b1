# frozen_string_literal: true

require "minitest/autorun"

require_relative "peer"

# Beginnings and ends that the daemon has not asked for: warm-up, forks, exits, late notes.
class TestEnding < Minitest::Test
  def test_a_forked_child_answers_nothing_and_takes_nothing
    [1, 2].each do |concurrency|
      Peer.of(concurrency) do |peer|
        { "exit" => 7, "return" => 0, "raise" => 1, "note" => 1 }.each do |how, code|
          # Were one to answer, or to end the pipe for both, this would not be all.
          assert_equal "the child has ended: #{code}", peer.ask("fork #{how}")["0"]
          assert_equal({ "0" => "", "1" => 200, "4" => 1 }, peer.receive)
        end
        peer.tell("__quit__")
        assert_equal 0, peer.ended
        stderr = peer.stderr
        assert_equal 4, stderr.scan("info: said by a child").size
        assert_includes stderr, "in a child (RuntimeError)"
        assert_includes stderr, "has forked can't emit"
      end
    end
  end

  def test_an_exit_harms_no_neighbour
    { "exit" => 3, "thread" => 1 }.each do |how, code|
      Peer.of(3) do |peer|
        peer.begin("stuck", 1)
        assert_equal [500, 2], peer.ask(how, 2).values_at("1", "4")
        # The daemon does not know yet. Its pipe is open still, and this one is not begun.
        peer.send("echo x", 3)
        peer.tell("__cancel__ 1")
        assert_equal({ "0" => "gave up", "1" => 429, "4" => 1 }, peer.receive)
        assert_equal [300, 3], peer.receive.values_at("1", "4")
        assert_equal code, peer.ended
      end
    end
  end

  def test_what_is_held_until_the_end_goes_back_when_it_is_cancelled
    Peer.of(4) do |peer|
      peer.begin("stuck", 1)
      assert_equal [500, 2], peer.ask("exit", 2).values_at("1", "4")
      peer.send("echo x", 3)
      peer.tell("__cancel__ 3")
      assert_equal [300, 3], peer.receive.values_at("1", "4")
      # Stdin and the pipe have no common order.
      peer.tell("__cancel__ 4")
      peer.send("echo x", 4)
      assert_equal [300, 4], peer.receive.values_at("1", "4")
      peer.tell("__cancel__ 1")
      assert_equal({ "0" => "gave up", "1" => 429, "4" => 1 }, peer.receive)
      assert_equal 3, peer.ended
    end
  end

  def test_warm_up_comes_before_the_pipe
    Peer.of(1) { |peer| assert_equal "warm, stdin held 0 bytes", peer.ask("warmth")["0"] }
    name = "warm-#{Process.pid}"
    path = "/tmp/CoreFxPipe_#{name}"
    UNIXServer.open(path) do |listener|
      _, status = Open3.capture2({ "WARM_UP" => "exit" }, RbConfig.ruby, Peer::MODES, "1", stdin_data: "#{name}\n")
      assert_equal 9, status.exitstatus
      assert_equal :wait_readable, listener.accept_nonblock(exception: false)
    end
  ensure
    FileUtils.rm_f(path)
  end

  def test_what_is_said_after_the_answer_goes_to_stderr
    Peer.of(2) do |peer|
      peer.ask("done", 1)
      assert_equal({ "0" => "", "1" => 200, "4" => 2 }, peer.ask("late", 2))
      peer.tell("__quit__")
      assert_equal 0, peer.ended
      stderr = peer.stderr
      assert_includes stderr, "warn: said late n=1"
      assert_includes stderr, "refused: emit must come before the handler's answer"
    end
  end
end
