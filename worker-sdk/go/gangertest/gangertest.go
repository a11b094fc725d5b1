// Package gangertest runs a handler on messages, without a daemon: what is tested is the handler in the
// real worker, on a real socket pair, in this process.
//
//	results, err := gangertest.Work(handle, ganger.Options{}, gangertest.Text("10"))
package gangertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	ganger "ganger.invalid/worker-sdk/go"
	"ganger.invalid/worker-sdk/go/internal/wire"
	"github.com/tinylib/msgp/msgp"
)

// A Message is what the handler is given.
type Message struct {
	Body             []byte
	Binary           bool // whether the body is sent as bytes though it is a text
	CorrelationID    string
	Queue            string // "test" if empty
	Headers          map[string]string
	Attempt          int    // 1 if 0
	MillisecondsLeft *int64 // nil for never
	Properties       map[string]any
	// CancelAfter asks the handler to abandon it, so long after it was handed out; nil for never.
	CancelAfter *time.Duration
}

// Text is a message of that body.
func Text(body string) Message { return Message{Body: []byte(body)} }

// A Note is an emit or a log record.
type Note struct {
	Message string
	Headers map[string]any
	Queue   string
}

// A Result is what became of one message, and what its handler sent meanwhile.
type Result struct {
	Status       int
	Message      []byte
	Headers      map[string]any
	Queue        string
	RetryAfterMs *uint64
	Emits        []Note
	Logs         []Note
	Progress     []string
}

// Silence is how long the worker may say nothing.
const Silence = time.Minute

// Work returns the results in the order of the messages; its error is the worker's own.
func Work(handler ganger.Handler, options ganger.Options, messages ...Message) ([]Result, error) {
	return WorkVersion(2, handler, options, messages...)
}

// WorkVersion is [Work] in that version of the protocol.
func WorkVersion(version int, handler ganger.Handler, options ganger.Options, messages ...Message) ([]Result, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	control, controlled := io.Pipe()
	defer controlled.Close()
	ended := make(chan error, 1)
	go func() { ended <- ganger.Serve(handler, options, theirs, control, version) }()
	peer := &peer{pipe: ours, control: controlled, messages: messages, results: make([]Result, len(messages))}
	peer.room = 1
	if version > 1 && options.Concurrency > 1 {
		peer.room = options.Concurrency
	}
	if err := peer.exchange(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("nothing from the worker for %v", Silence)
		}
		ours.Close()
		if own := <-ended; own != nil {
			return nil, own
		}
		return nil, err
	}
	_ = ours.CloseWrite()
	return peer.results, <-ended
}

func pair() (*net.UnixConn, *net.UnixConn, error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	var connections [2]*net.UnixConn
	for n, end := range ends {
		file := os.NewFile(uintptr(end), "pipe")
		connection, err := net.FileConn(file)
		file.Close()
		if err != nil {
			return nil, nil, err
		}
		connections[n] = connection.(*net.UnixConn)
	}
	return connections[0], connections[1], nil
}

// The daemon's side.
type peer struct {
	pipe     *net.UnixConn
	control  io.Writer
	messages []Message
	results  []Result
	inFlight []uint64
	room     int
	sent     int
}

func (p *peer) exchange() error {
	from := bufio.NewReader(p.pipe)
	for p.sent < len(p.messages) || len(p.inFlight) > 0 {
		for p.sent < len(p.messages) && len(p.inFlight) < p.room {
			if err := p.send(); err != nil {
				return err
			}
		}
		if err := p.pipe.SetReadDeadline(time.Now().Add(Silence)); err != nil {
			return err
		}
		frame, err := wire.ReadFrame(from, wire.FrameBytesMax)
		if err != nil {
			return err
		}
		if err := p.take(frame); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) send() error {
	id := uint64(p.sent)
	message := p.messages[p.sent]
	p.sent++
	p.inFlight = append(p.inFlight, id)
	frame, err := message.frame(id)
	if err != nil {
		return err
	}
	if message.CancelAfter != nil {
		time.AfterFunc(*message.CancelAfter, func() { fmt.Fprintf(p.control, "__cancel__ %d\n", id) })
	}
	_, err = p.pipe.Write(frame)
	return err
}

func (m *Message) frame(id uint64) ([]byte, error) {
	queue, attempt := m.Queue, m.Attempt
	if queue == "" {
		queue = "test"
	}
	if attempt == 0 {
		attempt = 1
	}
	b := msgp.AppendMapHeader([]byte{0, 0, 0, 0}, 8)
	b = msgp.AppendString(b, "0")
	if m.Binary {
		b = msgp.AppendBytes(b, m.Body)
	} else {
		b = msgp.AppendStringFromBytes(b, m.Body)
	}
	b = msgp.AppendString(msgp.AppendString(b, "1"), m.CorrelationID)
	b = msgp.AppendString(msgp.AppendString(b, "2"), queue)
	b = msgp.AppendMapStrStr(msgp.AppendString(b, "3"), m.Headers)
	b = msgp.AppendUint64(msgp.AppendString(b, "4"), id)
	b = msgp.AppendInt(msgp.AppendString(b, "5"), attempt)
	b = msgp.AppendString(b, "6")
	if m.MillisecondsLeft == nil {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendInt64(b, *m.MillisecondsLeft)
	}
	b, err := msgp.AppendMapStrIntf(msgp.AppendString(b, "7"), m.Properties)
	size := len(b) - 4
	b[0], b[1], b[2], b[3] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
	return b, err
}

func (p *peer) take(frame []byte) error {
	output, _, err := msgp.ReadMapStrIntfBytes(frame, nil)
	if err != nil {
		return err
	}
	status := integer(output["1"])
	if status == wire.Hello {
		return nil
	}
	at := 0
	if id, there := output["4"]; there {
		for at < len(p.inFlight) && p.inFlight[at] != uint64(integer(id)) {
			at++
		}
	}
	if at == len(p.inFlight) {
		return fmt.Errorf("the worker speaks of a message that is not in flight: %v", output)
	}
	result := &p.results[p.inFlight[at]]
	headers, _ := output["2"].(map[string]any)
	queue, _ := output["3"].(string)
	note := Note{string(body(output["0"])), headers, queue}
	switch status {
	case wire.Progress, wire.IgnoreMessage:
		result.Progress = append(result.Progress, note.Message)
	case wire.Log:
		result.Logs = append(result.Logs, note)
	case wire.Emit:
		result.Emits = append(result.Emits, note)
	default:
		p.inFlight = append(p.inFlight[:at], p.inFlight[at+1:]...)
		result.Status, result.Message = status, body(output["0"])
		result.Headers, result.Queue = headers, queue
		if after, there := output["5"]; there {
			milliseconds := uint64(integer(after))
			result.RetryAfterMs = &milliseconds
		}
	}
	return nil
}

func integer(value any) int {
	switch value := value.(type) {
	case int64:
		return int(value)
	case uint64:
		return int(value)
	default:
		return 0
	}
}

func body(value any) []byte {
	switch value := value.(type) {
	case string:
		return []byte(value)
	case []byte:
		return value
	default:
		return nil
	}
}
