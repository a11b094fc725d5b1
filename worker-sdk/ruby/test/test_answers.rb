# frozen_string_literal: true

require "minitest/autorun"

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "ganger/testing"
require_relative "peer"
require_relative "unusual"

# What a handler may say, and what is its message's failure instead of the whole worker's.
class TestAnswers < Minitest::Test
  def test_in_life
    assert_equal UNUSUAL.keys.sort, (SENT.keys + REFUSED.keys).sort
    Peer.of(2) do |peer|
      SENT.each { |name, answer| assert_equal answer.merge("4" => 1), peer.ask("unusual #{name}") }
      REFUSED.each do |name, why|
        answer = peer.ask("unusual #{name}")
        assert_equal 500, answer["1"], name
        assert_includes answer["0"], why
      end
      emit = { "0" => '{"a":1}', "1" => 103, "2" => JSON_TYPE, "3" => "parts", "4" => 1 }
      assert_equal emit, peer.ask("publish object")
      assert_equal 200, peer.receive["1"]
      assert_equal({ "0" => "5", "1" => 102, "4" => 1 }, peer.ask("count"))
      assert_equal 200, peer.receive["1"]
      %w[queue nan].each { |name| assert_equal 500, peer.ask("publish #{name}")["1"] }
      assert_equal "on", peer.ask("echo on")["0"]
    end
  end

  def test_in_the_harness
    results = Ganger::Testing.work(UNUSUAL.keys) { |task| UNUSUAL.fetch(task.text) }
    UNUSUAL.keys.zip(results) do |name, result|
      if (answer = SENT[name])
        assert_equal answer.values_at("0", "1"), [result.message, result.status]
        assert_equal [answer["2"]], [result.headers]
      else
        assert_equal 500, result.status, name
        assert_includes result.message, REFUSED.fetch(name)
      end
    end
  end

  def test_the_daemons_limit_is_obeyed
    [[1], [1, 4096]].each do |args|
      Peer.of(*args, variables: { "GANGER_FRAME_BYTES_MAX" => "1024" }) do |peer|
        answer = peer.ask("large 1020")
        assert_equal 500, answer["1"]
        assert_includes answer["0"], "at most 1024 bytes: 10"
        # So is it by what a failure, a reason and a note have to say.
        answer = peer.ask("raise #{'x' * 900}")
        assert_equal 500, answer["1"]
        assert_includes answer["0"], "ArgumentError: no good"
        assert_equal 102, peer.ask("progress #{'ü' * 400}")["1"]
        assert_equal 200, peer.receive["1"]
      end
    end
    Peer.of(1, 1000, variables: { "GANGER_FRAME_BYTES_MAX" => "1024" }) do |peer|
      assert_equal 500, peer.ask("large 990")["1"]
    end
  end

  def test_a_headers_name_may_be_anybodys_built_in
    headers = %w[constructor __proto__ class method_missing length level].to_h { |name| [name, "v"] }
    echo = ->(task) { Ganger.reply(task.text, headers: task.headers) }
    message = Ganger::Testing::Message.new("x", headers:)
    assert_equal headers, Ganger::Testing.work([message], echo).first.headers
    Peer.of(1) { |peer| assert_equal headers.sort.inspect, peer.ask("headers x", 1, _3: headers)["0"] }
  end
end
