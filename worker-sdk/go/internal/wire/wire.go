// Package wire has the bytes of the protocol: frames, what the daemon sends, what a worker answers.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
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

const (
	depthMax   = 64
	headersMax = 10_000
)

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

// Append writes the output behind what is there, as a frame with its length. On an error nothing is added:
// what the daemon would refuse is the failure of one message here, and would be that of the process there.
func Append(buffer []byte, output *Output, frameBytesMax int) ([]byte, error) {
	start := len(buffer)
	whole, err := appendWhole(append(buffer, 0, 0, 0, 0), output)
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

// appendWhole makes an error of a panic, such as that of a String method of the handler's.
func appendWhole(b []byte, output *Output) (whole []byte, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			whole, err = nil, fmt.Errorf("a header can't be sent: its value panics: %v", reason)
		}
	}()
	return appendMap(b, output)
}

func appendMap(b []byte, output *Output) ([]byte, error) {
	if count := len(output.Headers); count > headersMax {
		return nil, fmt.Errorf("an answer must have at most %d headers: %d", headersMax, count)
	}
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
			if b, err = appendText(b, header.Name); err != nil {
				return nil, fmt.Errorf("a header's name can't be sent: %w", err)
			}
			// A value is within its map, which is within the frame's.
			if b, err = appendValue(b, header.Value, depthMax-2); err != nil {
				return nil, fmt.Errorf("the header %q can't be sent: %w", header.Name, err)
			}
		}
	}
	if output.Queue != "" {
		var err error
		if b, err = appendText(append(b, 0xa1, '3'), output.Queue); err != nil {
			return nil, fmt.Errorf("a queue's name can't be sent: %w", err)
		}
	}
	if output.ID != nil {
		b = msgp.AppendUint64(append(b, 0xa1, '4'), *output.ID)
	}
	if output.AfterMs != nil {
		b = msgp.AppendUint64(append(b, 0xa1, '5'), *output.AfterMs)
	}
	return b, nil
}

func appendText(b []byte, text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("it must be UTF-8: %q", text)
	}
	return msgp.AppendString(b, text), nil
}

// appendValue takes what MessagePack has, nested so deep and no deeper: a map may hold itself.
func appendValue(b []byte, value any, depth int) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return msgp.AppendNil(b), nil
	case error:
		return appendText(b, value.Error())
	case fmt.Stringer:
		return appendText(b, value.String())
	case []byte:
		return msgp.AppendBytes(b, value), nil
	case msgp.Marshaler:
		return appendMarshaler(b, value, depth)
	case msgp.Extension:
		if depth > 0 {
			return msgp.AppendExtension(b, value)
		}
	}
	of := reflect.ValueOf(value)
	switch of.Kind() {
	case reflect.Bool:
		return msgp.AppendBool(b, of.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return msgp.AppendInt64(b, of.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return msgp.AppendUint64(b, of.Uint()), nil
	case reflect.Float32:
		return msgp.AppendFloat32(b, float32(of.Float())), nil
	case reflect.Float64:
		return msgp.AppendFloat64(b, of.Float()), nil
	case reflect.String:
		return appendText(b, of.String())
	case reflect.Pointer:
		if of.IsNil() {
			return msgp.AppendNil(b), nil
		}
	case reflect.Slice:
		if of.Type().Elem().Kind() == reflect.Uint8 {
			return msgp.AppendBytes(b, of.Bytes()), nil
		}
	case reflect.Map, reflect.Array:
	default:
		return nil, fmt.Errorf("MessagePack has no %T", value)
	}
	if depth == 0 {
		return nil, fmt.Errorf("it must be nested at most %d deep", depthMax-2)
	}
	switch of.Kind() {
	case reflect.Pointer:
		return appendValue(b, of.Elem().Interface(), depth-1)
	case reflect.Map:
		return appendValues(b, of, depth-1)
	default:
		return appendList(b, of, depth-1)
	}
}

func appendValues(b []byte, of reflect.Value, depth int) ([]byte, error) {
	if of.Type().Key().Kind() != reflect.String {
		return nil, fmt.Errorf("a map's names must be texts: %v", of.Type())
	}
	b = msgp.AppendMapHeader(b, uint32(of.Len()))
	for each := of.MapRange(); each.Next(); {
		var err error
		if b, err = appendText(b, each.Key().String()); err != nil {
			return nil, err
		}
		if b, err = appendValue(b, each.Value().Interface(), depth); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func appendList(b []byte, of reflect.Value, depth int) ([]byte, error) {
	b = msgp.AppendArrayHeader(b, uint32(of.Len()))
	for n := 0; n < of.Len(); n++ {
		var err error
		if b, err = appendValue(b, of.Index(n).Interface(), depth); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// appendMarshaler looks at what a type writes by itself.
func appendMarshaler(b []byte, value msgp.Marshaler, depth int) ([]byte, error) {
	start := len(b)
	b, err := value.MarshalMsg(b)
	if err != nil {
		return nil, err
	}
	rest, err := skip(b[start:], depth)
	if err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("%T must write one value of MessagePack, nested at most %d deep", value, depthMax-2)
	}
	return b, nil
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
