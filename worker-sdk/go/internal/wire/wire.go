// Package wire has the bytes of the protocol: frames, what the daemon sends, what a worker answers.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// FrameBytesMax is the longest frame, unless the pool's frame_bytes_max says otherwise.
const FrameBytesMax = 64 << 20

// The protocol's numbers.
const (
	IgnoreMessage = -1
	Hello         = 100
	Log           = 101
	Progress      = 102
	Emit          = 103
	Done          = 200
	DoneWithReply = 201
	Requeue       = 300
	Reject        = 400
	Retry         = 429
	UnknownError  = 500
)

const depthMax = 64

// A ProtocolError says what was sent against the protocol.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return e.Reason }

func wrong(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}

// A Header of a reply or an emit. The daemon reads each value in its text form.
type Header struct {
	Name  string
	Value any
}

// Output is what a worker sends.
type Output struct {
	Message []byte
	Status  int
	Headers []Header // nil for none
	Queue   string
	ID      *uint64
	AfterMs *uint64
}

// Append writes the output behind what is there, as a frame with its length. On an error nothing is added.
func Append(buffer []byte, output *Output, frameBytesMax int) ([]byte, error) {
	start := len(buffer)
	whole, err := appendMap(append(buffer, 0, 0, 0, 0), output)
	if err != nil {
		return buffer[:start], err
	}
	size := len(whole) - start - 4
	if size > frameBytesMax {
		return buffer[:start], fmt.Errorf("an answer must have at most %d bytes: %d", frameBytesMax, size)
	}
	binary.BigEndian.PutUint32(whole[start:], uint32(size))
	return whole, nil
}

func appendMap(b []byte, output *Output) ([]byte, error) {
	size := uint32(2)
	for _, there := range []bool{output.Headers != nil, output.Queue != "", output.ID != nil, output.AfterMs != nil} {
		if there {
			size++
		}
	}
	b = msgp.AppendMapHeader(b, size)
	b = append(b, 0xa1, '0')
	if utf8.Valid(output.Message) {
		b = msgp.AppendStringFromBytes(b, output.Message)
	} else {
		b = msgp.AppendBytes(b, output.Message)
	}
	b = append(b, 0xa1, '1')
	if output.Status >= 0 {
		b = msgp.AppendUint64(b, uint64(output.Status))
	} else {
		b = msgp.AppendInt(b, output.Status)
	}
	if output.Headers != nil {
		b = msgp.AppendMapHeader(append(b, 0xa1, '2'), uint32(len(output.Headers)))
		for _, header := range output.Headers {
			var err error
			b = msgp.AppendString(b, header.Name)
			if b, err = appendValue(b, header.Value); err != nil {
				return nil, fmt.Errorf("the header %q can't be sent: %w", header.Name, err)
			}
		}
	}
	if output.Queue != "" {
		b = msgp.AppendString(append(b, 0xa1, '3'), output.Queue)
	}
	if output.ID != nil {
		b = msgp.AppendUint64(append(b, 0xa1, '4'), *output.ID)
	}
	if output.AfterMs != nil {
		b = msgp.AppendUint64(append(b, 0xa1, '5'), *output.AfterMs)
	}
	return b, nil
}

// The library has the basic types, and lists and maps of them.
func appendValue(b []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case error:
		return msgp.AppendString(b, value.Error()), nil
	case fmt.Stringer:
		return msgp.AppendString(b, value.String()), nil
	default:
		return msgp.AppendIntf(b, value)
	}
}

// ReadFrame returns the next frame without its length; io.EOF at the end, whole frame or not.
func ReadFrame(from io.Reader, frameBytesMax int) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, end(err)
	}
	size := binary.BigEndian.Uint32(length[:])
	switch {
	case size == 0:
		return nil, wrong("a frame's length must be 1 or more: 0")
	case size > 0x7fffffff:
		return nil, wrong("a frame's length must not have its top bit set: %#x", size)
	case uint64(size) > uint64(frameBytesMax):
		return nil, wrong("a frame must have at most %d bytes (Options.FrameBytesMax): %d", frameBytesMax, size)
	}
	frame := make([]byte, size)
	_, err := io.ReadFull(from, frame)
	return frame, end(err)
}

func end(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// Input is what the daemon sends.
type Input struct {
	Message          []byte
	CorrelationID    string
	Queue            string
	Headers          map[string]string
	ID               *uint64
	Attempt          uint64 // 0 if it is not told
	MillisecondsLeft *uint64
	Properties       map[string]any
}

// Decode reads an input; a ProtocolError says what is wrong with it. The message is a part of the frame.
func Decode(frame []byte) (*Input, error) {
	if len(frame) == 0 || msgp.NextType(frame) != msgp.MapType {
		return nil, wrong("an input must be a map")
	}
	size, rest, err := msgp.ReadMapHeaderBytes(frame)
	if err != nil {
		return nil, wrong("an input must be one MessagePack map: %v", err)
	}
	input := &Input{}
	var seen [8]bool
	for ; size > 0; size-- {
		if len(rest) == 0 {
			return nil, wrong("an input must be whole: it ends within its map")
		}
		if msgp.NextType(rest) != msgp.StrType {
			return nil, wrong("an input's keys must be texts: %v", msgp.NextType(rest))
		}
		var key []byte
		if key, rest, err = msgp.ReadStringZC(rest); err != nil {
			return nil, wrong("an input's keys must be texts: %v", err)
		}
		if !utf8.Valid(key) {
			return nil, wrong("an input's keys must be UTF-8: %q", key)
		}
		after, err := skip(rest, depthMax-1)
		if err != nil {
			return nil, err
		}
		if len(key) == 1 && key[0] >= '0' && key[0] <= '7' {
			if seen[key[0]-'0'] {
				return nil, wrong("an input must have each key once: %q is there twice", key)
			}
			seen[key[0]-'0'] = true
			if err := input.set(key[0], rest[:len(rest)-len(after)]); err != nil {
				return nil, err
			}
		}
		rest = after
	}
	if len(rest) > 0 {
		return nil, wrong("an input must be one map: %d bytes follow it", len(rest))
	}
	for n, there := range seen[:4] {
		if !there {
			return nil, wrong("an input must have the keys \"0\" to \"3\": no \"%d\"", n)
		}
	}
	return input, nil
}

// set takes a value that is whole.
func (input *Input) set(key byte, value []byte) (err error) {
	kind := msgp.NextType(value)
	if kind == msgp.NilType {
		return nil
	}
	wanted := ""
	switch key {
	case '0':
		wanted = "a text or bytes"
		if kind == msgp.StrType {
			input.Message, _, err = msgp.ReadStringZC(value)
		} else {
			input.Message, _, err = msgp.ReadBytesZC(value)
		}
	case '1':
		wanted = "a text"
		input.CorrelationID, _, err = msgp.ReadStringBytes(value)
	case '2':
		wanted = "a text"
		input.Queue, _, err = msgp.ReadStringBytes(value)
	case '3':
		wanted = "a map of texts to texts"
		input.Headers, err = readHeaders(value)
	case '4':
		wanted = "a number from 0"
		input.ID, err = readCount(value)
	case '5':
		wanted = "a number from 1"
		var attempt *uint64
		if attempt, err = readCount(value); err == nil {
			if input.Attempt = *attempt; *attempt == 0 {
				err = errors.New("0")
			}
		}
	case '6':
		wanted = "a number from 0"
		input.MillisecondsLeft, err = readCount(value)
	case '7':
		wanted = "a map"
		input.Properties, _, err = msgp.ReadMapStrIntfBytes(value, nil)
	}
	if err != nil {
		return wrong("an input's key \"%c\" must hold %s: %v", key, wanted, err)
	}
	return nil
}

func readCount(value []byte) (*uint64, error) {
	if kind := msgp.NextType(value); kind != msgp.UintType && kind != msgp.IntType {
		return nil, errors.New(kind.String())
	}
	number, _, err := msgp.ReadUint64Bytes(value)
	return &number, err
}

func readHeaders(value []byte) (map[string]string, error) {
	size, rest, err := msgp.ReadMapHeaderBytes(value)
	if err != nil || size == 0 {
		return nil, err
	}
	headers := make(map[string]string, size)
	for ; size > 0; size-- {
		var name, text string
		if name, rest, err = msgp.ReadStringBytes(rest); err != nil {
			return nil, err
		}
		if text, rest, err = msgp.ReadStringBytes(rest); err != nil {
			return nil, err
		}
		headers[name] = text
	}
	return headers, nil
}

// skip returns what follows the value, without making anything of it: so deep and no deeper.
func skip(b []byte, depth int) ([]byte, error) {
	if len(b) == 0 {
		return nil, wrong("an input must be whole: it ends before a value")
	}
	length, values := 1, uint64(0)
	switch kind := b[0]; {
	case kind <= 0x7f || kind >= 0xe0 || kind == 0xc0 || kind == 0xc2 || kind == 0xc3:
	case kind == 0xc1:
		return nil, wrong("an input must be MessagePack, which never has the byte 0xc1")
	case kind <= 0x8f:
		values = 2 * uint64(kind&0x0f)
	case kind <= 0x9f:
		values = uint64(kind & 0x0f)
	case kind <= 0xbf:
		length += int(kind & 0x1f)
	default:
		size := sizes[kind-0xc4]
		if len(b) < 1+size.width {
			return nil, wrong("an input must be whole: it ends within a length")
		}
		number := uint64(0)
		for _, each := range b[1 : 1+size.width] {
			number = number<<8 | uint64(each)
		}
		length += size.width + size.more + int(number)*size.bytes
		values = number * uint64(size.values)
	}
	if length > len(b) {
		return nil, wrong("an input must be whole: it claims %d bytes more", length-len(b))
	}
	b = b[length:]
	if values > 0 && depth == 0 {
		return nil, wrong("an input must be nested at most %d deep", depthMax)
	}
	var err error
	for ; values > 0; values-- {
		if b, err = skip(b, depth-1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// What follows the types from 0xc4 on: so wide a number, so many bytes more, and for each of the
// number so many bytes or values.
var sizes = [...]struct{ width, more, bytes, values int }{
	{1, 0, 1, 0}, {2, 0, 1, 0}, {4, 0, 1, 0}, // bin
	{1, 1, 1, 0}, {2, 1, 1, 0}, {4, 1, 1, 0}, // ext
	{0, 4, 0, 0}, {0, 8, 0, 0}, // float
	{0, 1, 0, 0}, {0, 2, 0, 0}, {0, 4, 0, 0}, {0, 8, 0, 0}, // uint
	{0, 1, 0, 0}, {0, 2, 0, 0}, {0, 4, 0, 0}, {0, 8, 0, 0}, // int
	{0, 2, 0, 0}, {0, 3, 0, 0}, {0, 5, 0, 0}, {0, 9, 0, 0}, {0, 17, 0, 0}, // fixext
	{1, 0, 1, 0}, {2, 0, 1, 0}, {4, 0, 1, 0}, // str
	{2, 0, 0, 1}, {4, 0, 0, 1}, // array
	{2, 0, 0, 2}, {4, 0, 0, 2}, // map
}
