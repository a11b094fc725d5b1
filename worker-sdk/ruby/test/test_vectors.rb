# frozen_string_literal: true

require "json"
require "minitest/autorun"

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "ganger/worker"

# The published vectors: proto-spec/vectors.
class TestVectors < Minitest::Test
  FOLDER = File.expand_path("../../../proto-spec/vectors", __dir__)
  Wire = Ganger::Wire

  def vectors(*names)
    names.flat_map do |name|
      file = JSON.parse(File.read("#{FOLDER}/#{name}.json", encoding: "UTF-8"))
      assert_equal 1, file["format"]
      file["vectors"]
    end
  end

  def bytes(hex)
    [hex].pack("H*")
  end

  def decode(data)
    Wire::Decoder.new.decode(data)
  end

  def body(meaning)
    meaning["text"] || bytes(meaning["hex"])
  end

  def property(meaning)
    return meaning["integer"].to_i if meaning.key?("integer")

    meaning.fetch("boolean") { body(meaning) }
  end

  def test_inputs_mean_what_they_should
    vectors("input-v1", "input-v2").each do |vector|
      task = Ganger::Task.new(decode(bytes(vector["bytes"])), nil, nil)
      meaning = vector["meaning"]
      message = body(meaning["message"])
      assert_equal [message, message.encoding], [task.message, task.message.encoding], vector["name"]
      assert_equal meaning.values_at("correlation_id", "queue"), [task.correlation_id, task.queue]
      assert_equal meaning["headers"], task.headers.to_a
      assert_equal [meaning["id"]&.to_i, *meaning.values_at("attempt", "milliseconds_left")],
                   [task.id, task.attempt, task.milliseconds_left]
      assert_equal meaning["properties"].map { |name, value| [name, property(value)] }, task.properties.to_a
    end
  end

  def refused(data, name)
    assert_raises(Ganger::ProtocolError, name) { decode(data) }
  end

  def test_hostile_inputs_are_refused
    vectors("input-hostile").each { |vector| refused(bytes(vector["bytes"]), vector["name"]) }
  end

  def test_what_the_vectors_lack_is_refused_too
    start = "85a130a16da131a0a132a171a133"
    { "empty" => "",
      "bin for a key" => "85c40130a16da131a0a132a171a13380a13401",
      "a key that is not UTF-8" => "86a130a16da131a0a132a171a13380a13401a1ffc0",
      "header of a number" => "#{start}81a16101a13401",
      "header of bytes" => "#{start}81a161c40161a13401",
      "headers in a list" => "#{start}90a13401",
      "true for an id" => "#{start}80a134c3",
      "properties in a list" => "86a130a16da131a0a132a171a13380a13401a13790",
      "0xc1" => "#{start}80a134c1",
      "nested too deep" => "#{start}80a178#{"91" * 64}c0",
      "nested much too deep" => "#{start}80a178#{"91" * 100_000}c0",
      "an id twice in a wide map" => "de0006a130a16da131a0a132a171a13380a13401a13402",
      "claims 4 GiB" => "#{start}80a178c6ffffffff",
      "claims 4 G values" => "#{start}80a178ddffffffff",
      "claims 4 G entries" => "dfffffffff" }.each { |name, hex| refused(bytes(hex), name) }
  end

  def test_unknown_keys_may_hold_anything
    start = "86a130a16da131a0a132a171a13380a13401a178"
    repeated = "87a130a16da131a0a132a171a13380a13401a178c0a178c0"
    wide = "de0005a130a16da131a0a132a171a13380a13401"
    ["#{start}820102c0c3", "#{start}c70305616263", "#{start}#{"91" * 62}c0", repeated, wide].each do |hex|
      assert_equal 1, decode(bytes(hex))[4], hex
    end
  end

  def test_a_body_that_claims_to_be_text_is_bytes
    message = decode(bytes("85a130a1ffa131a0a132a171a13380a13401"))[0]
    assert_equal ["\xff".b, Encoding::BINARY], [message, message.encoding]
  end

  def test_outputs_are_written_byte_for_byte
    written = vectors("output-v1", "output-v2").select { |vector| vector["form"] == "canonical" }
    written.each do |vector|
      meaning = vector["meaning"]
      data = Wire.encode(body(meaning["message"]), meaning["status"],
                         headers: meaning["headers"]&.to_h, queue: meaning["reply_queue"],
                         id: meaning["id"]&.to_i, after_ms: meaning["retry_after_ms"])
      assert_equal vector["bytes"], data.unpack1("H*"), vector["name"]
    end
    assert_operator written.size, :>, 20
  end

  def test_texts_of_other_encodings_go_as_utf_8_and_what_is_none_as_bytes
    { "é".encode("ISO-8859-1") => "a2c3a9", "é".b => "c402c3a9", "\xff" => "c401ff", :é.to_s => "a2c3a9" }
      .each do |message, hex|
      assert_equal "82a130#{hex}a131ccc9", Wire.encode(message, 201).unpack1("H*")
    end
    [["é".b, "a2c3a9"], ["é".encode("UTF-16LE"), "a2c3a9"]].each do |queue, hex|
      assert_includes Wire.encode("", 201, queue:).unpack1("H*"), "a133#{hex}"
    end
    assert_raises(ArgumentError) { Wire.encode("", 201, queue: "\xff") }
    headers = { at: Time.at(0).utc, many: [1], big: 1 << 64, "\xff" => nil }
    output = MessagePack.unpack(Wire.encode("", 201, headers:))
    assert_equal ["1970-01-01 00:00:00 UTC", "[1]", (1 << 64).to_s, nil], output["2"].values
  end

  def test_the_short_way_to_the_usual_answer_writes_the_same
    [nil, 0, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 64) - 1].each do |id|
      assert_equal Wire.framed(Wire.encode("", 200, id:), 100).b, Wire.done(id).b, id.inspect
    end
  end

  def test_framing_however_the_stream_is_cut
    vectors("framing").product([1, 2, 3, 5, 7, 10_000]) do |vector, size|
      splitter = Wire::Splitter.new(vector["frame_bytes_max"])
      frames = []
      broken = nil
      begin
        bytes(vector["stream"]).scan(/.{1,#{size}}/mn) do |part|
          if (frame = splitter.sole(part))
            frames << frame.unpack1("H*")
            next
          end
          splitter << part
          while (frame = splitter.shift)
            frames << frame.unpack1("H*")
          end
        end
      rescue Ganger::ProtocolError => error
        broken = error
      end
      assert_equal vector["frames"], frames, vector["name"]
      assert_equal vector["error"].nil?, broken.nil?, vector["name"]
      assert_equal vector["rest"], splitter.rest.unpack1("H*") unless broken
    end
  end
end
