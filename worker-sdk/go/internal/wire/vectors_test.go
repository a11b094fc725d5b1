package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

type meaning struct {
	Message          map[string]string    `json:"message"`
	CorrelationID    string               `json:"correlation_id"`
	Queue            string               `json:"queue"`
	Headers          [][2]string          `json:"headers"`
	ID               *string              `json:"id"`
	Attempt          *uint64              `json:"attempt"`
	MillisecondsLeft *uint64              `json:"milliseconds_left"`
	Properties       [][2]json.RawMessage `json:"properties"`
	Status           int                  `json:"status"`
	ReplyQueue       *string              `json:"reply_queue"`
	RetryAfterMs     *uint64              `json:"retry_after_ms"`
}

type vector struct {
	Name          string          `json:"name"`
	Form          string          `json:"form"`
	Bytes         string          `json:"bytes"`
	Meaning       meaning         `json:"meaning"`
	FrameBytesMax int             `json:"frame_bytes_max"`
	Stream        string          `json:"stream"`
	Frames        []string        `json:"frames"`
	Rest          *string         `json:"rest"`
	Error         json.RawMessage `json:"error"`
}

func vectors(t *testing.T, names ...string) []vector {
	t.Helper()
	var all []vector
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../../../../proto-spec/vectors", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Format  int      `json:"format"`
			Vectors []vector `json:"vectors"`
		}
		if err := json.Unmarshal(text, &file); err != nil || file.Format != 1 || len(file.Vectors) == 0 {
			t.Fatalf("%s: format %d, %d vectors: %v", name, file.Format, len(file.Vectors), err)
		}
		all = append(all, file.Vectors...)
	}
	return all
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func body(t *testing.T, message map[string]string) []byte {
	if text, there := message["text"]; there {
		return []byte(text)
	}
	return unhex(t, message["hex"])
}

func number(t *testing.T, text *string) *uint64 {
	if text == nil {
		return nil
	}
	value, err := strconv.ParseUint(*text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return &value
}

func show(number *uint64) string {
	if number == nil {
		return "none"
	}
	return strconv.FormatUint(*number, 10)
}

func TestInputsMeanWhatTheyShould(t *testing.T) {
	for _, vector := range vectors(t, "input-v1", "input-v2") {
		t.Run(vector.Name, func(t *testing.T) {
			wanted := vector.Meaning
			input, err := Decode(unhex(t, vector.Bytes))
			if err != nil {
				t.Fatal(err)
			}
			attempt := uint64(0)
			if wanted.Attempt != nil {
				attempt = *wanted.Attempt
			}
			for _, pair := range [][2]string{
				{string(input.Message), string(body(t, wanted.Message))},
				{input.CorrelationID, wanted.CorrelationID},
				{input.Queue, wanted.Queue},
				{show(input.ID), show(number(t, wanted.ID))},
				{show(&input.Attempt), show(&attempt)},
				{show(input.MillisecondsLeft), show(wanted.MillisecondsLeft)},
				{strconv.Itoa(len(input.Headers)), strconv.Itoa(len(wanted.Headers))},
				{strconv.Itoa(len(input.Properties)), strconv.Itoa(len(wanted.Properties))},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%q, not %q", pair[0], pair[1])
				}
			}
			for _, header := range wanted.Headers {
				if input.Headers[header[0]] != header[1] {
					t.Errorf("%q is %q, not %q", header[0], input.Headers[header[0]], header[1])
				}
			}
			for _, property := range wanted.Properties {
				checkProperty(t, input.Properties, property)
			}
		})
	}
}

func checkProperty(t *testing.T, properties map[string]any, property [2]json.RawMessage) {
	var name string
	var value map[string]any
	if err := json.Unmarshal(property[0], &name); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(property[1], &value); err != nil {
		t.Fatal(err)
	}
	found := fmt.Sprint(properties[name])
	for kind, wanted := range value {
		text := fmt.Sprint(wanted)
		if kind == "hex" {
			text = fmt.Sprint(unhex(t, text))
		}
		if found != text {
			t.Errorf("%q is %s, not %s", name, found, text)
		}
	}
}

func TestHostileInputsAreRefused(t *testing.T) {
	hostile := map[string]string{
		"empty":                   "",
		"bin for a key":           "85c40130a16da131a0a132a171a13380a13401",
		"a key that is not UTF-8": "85a130a16da131a0a132a171a13380a1ffc0",
		"header of a number":      "85a130a16da131a0a132a171a13381a16101a13401",
		"headers in a list":       "85a130a16da131a0a132a171a13390a13401",
		"true for an id":          "85a130a16da131a0a132a171a13380a134c3",
		"a fraction for an id":    "85a130a16da131a0a132a171a13380a134cb3ff8000000000000",
		"attempt 0":               "86a130a16da131a0a132a171a13380a13401a13500",
		"0xc1":                    "85a130a16da131a0a132a171a13380a178c1",
		"nested too deep":         "85a130a16da131a0a132a171a13380a178" + strings.Repeat("91", 64) + "c0",
		"nested much too deep":    "85a130a16da131a0a132a171a13380a137" + strings.Repeat("91", 1<<20) + "c0",
		"claims 4 GiB":            "85a130a16da131a0a132a171a13380a178c6ffffffff",
		"a list that claims 2 G":  "85a130a16da131a0a132a171a13380a178dd7fffffff",
		"claims 4 G entries":      "dfffffffff",
		"properties claim 4 G":    "86a130a16da131a0a132a171a13380a13401a137dfffffffff",
		"a length that is cut":    "85a130a16da131a0a132a171a13380a178da00",
	}
	for _, vector := range vectors(t, "input-hostile") {
		hostile[vector.Name] = vector.Bytes
	}
	for name, data := range hostile {
		var wanted *ProtocolError
		if input, err := Decode(unhex(t, data)); !errors.As(err, &wanted) {
			t.Errorf("%s: %v, %v", name, input, err)
		}
	}
}

func TestUnknownKeysMayHoldAnything(t *testing.T) {
	start := "86a130a16da131a0a132a171a13380a13401a178"
	for _, data := range []string{
		start + "820102c0c3", start + "818001", start + "c70305616263", start + strings.Repeat("91", 63) + "c0",
		start + "d80100000000000000000000000000000000", start + "db00000001ff", start + "ca00000000",
		"87a130a16da131a0a132a171a13380a13401a178c0a178c0",
	} {
		if input, err := Decode(unhex(t, data)); err != nil || *input.ID != 1 {
			t.Errorf("%s: %v", data, err)
		}
	}
}

func TestOutputsAreWrittenByteForByte(t *testing.T) {
	written := 0
	for _, vector := range vectors(t, "output-v1", "output-v2") {
		if vector.Form != "canonical" {
			continue
		}
		written++
		wanted := vector.Meaning
		output := Output{
			Message: body(t, wanted.Message),
			Status:  wanted.Status,
			ID:      number(t, wanted.ID),
			AfterMs: wanted.RetryAfterMs,
		}
		if wanted.ReplyQueue != nil {
			output.Queue = *wanted.ReplyQueue
		}
		if wanted.Headers != nil {
			output.Headers = []Header{}
		}
		for _, header := range wanted.Headers {
			output.Headers = append(output.Headers, Header{header[0], header[1]})
		}
		data, err := Append([]byte("before"), &output, FrameBytesMax)
		if err != nil {
			t.Fatal(err)
		}
		if found := hex.EncodeToString(data[len("before")+4:]); found != vector.Bytes {
			t.Errorf("%s: %s, not %s", vector.Name, found, vector.Bytes)
		}
	}
	if written <= 20 {
		t.Errorf("only %d", written)
	}
}

func TestWhatCanNotBeSentLeavesNothingBehind(t *testing.T) {
	for _, output := range []Output{
		{Headers: []Header{{"f", func() {}}}},
		{Message: bytes.Repeat([]byte("x"), 200)},
	} {
		if data, err := Append([]byte("before"), &output, 100); err == nil || string(data) != "before" {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func TestFramingHoweverTheStreamIsCut(t *testing.T) {
	for _, vector := range vectors(t, "framing") {
		stream := unhex(t, vector.Stream)
		for name, from := range map[string]io.Reader{
			"whole":     bytes.NewReader(stream),
			"dribbling": iotest.OneByteReader(bytes.NewReader(stream)),
		} {
			var frames []string
			var err error
			for err == nil {
				var frame []byte
				if frame, err = ReadFrame(from, vector.FrameBytesMax); err == nil {
					frames = append(frames, hex.EncodeToString(frame))
				}
			}
			if fmt.Sprint(frames) != fmt.Sprint(vector.Frames) {
				t.Errorf("%s, %s: %v, not %v", vector.Name, name, frames, vector.Frames)
			}
			if broken := string(vector.Error) != "null"; broken != (err != io.EOF) {
				t.Errorf("%s, %s: %v", vector.Name, name, err)
			}
		}
	}
}
