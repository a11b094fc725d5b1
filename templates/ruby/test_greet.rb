# frozen_string_literal: true

require "minitest/autorun"
require "ganger/testing"
require_relative "greet"

# The handler in a real worker, without a daemon.
class TestGreet < Minitest::Test
  def test_whoever_is_named_is_greeted
    result, = Ganger::Testing.work(["world"], &GREET)
    assert_equal [201, "Hello, world!"], [result.status, result.message]
  end

  def test_nobody_is_rejected
    result, = Ganger::Testing.work([""], &GREET)
    assert_equal [400, "nobody to greet"], [result.status, result.message]
  end
end
