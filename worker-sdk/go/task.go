package ganger

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"ganger.invalid/worker-sdk/go/internal/wire"
)

// A Task is a message as its handler sees it.
type Task struct {
	// Message is the body, whether it is text or not.
	Message []byte
	// CorrelationID is empty if the message has none.
	CorrelationID string
	// Queue is the queue or topic that it was read from.
	Queue string
	// Headers in their text form.
	Headers map[string]string
	// ID is the daemon's number for it on this connection.
	ID uint64
	// Attempt says which try this is, from 1; 0 if the daemon does not tell.
	Attempt int
	// MillisecondsLeft from now on this process is killed for taking too long; -1 for never.
	MillisecondsLeft int64
	// Properties is what the source knows of it: message id, content type, topic, offset and so on.
	Properties map[string]any

	worker *worker
	hasID  bool
	over   bool // answered; of the writer's mutex
	// When it was taken in hand, and how long it may take; negative for ever.
	begun    time.Time
	limit    time.Duration
	cancel   context.CancelFunc
	timedOut bool // of the worker's mutex
}

type contextKey struct{}

// FromContext returns the task that a handler's context belongs to; nil for any other context.
func FromContext(ctx context.Context) *Task {
	task, _ := ctx.Value(contextKey{}).(*Task)
	return task
}

// Text is the message as a string.
func (t *Task) Text() string { return string(t.Message) }

// Emit publishes a message while the work goes on. This task is not done before it is stored; when it
// is tried again, it emits again, with the same header ganger-emit-id.
func (t *Task) Emit(queue, message string, headers ...Header) error {
	return t.EmitBytes(queue, []byte(message), headers...)
}

// EmitBytes is [Task.Emit] with a message that may be no text. It fails if it can't be sent, as when the
// task is answered already.
func (t *Task) EmitBytes(queue string, message []byte, headers ...Header) error {
	if queue == "" {
		return errors.New("emit needs the name of a queue: \"\"")
	}
	if t.worker.version == 1 {
		return errors.New("emit needs version 2 of the protocol, which this daemon lacks")
	}
	return t.send(wire.Output{Message: message, Status: wire.Emit, Headers: headers, Queue: queue})
}

// Progress shows how far it is; it also proves that the worker is alive (stall_timeout).
func (t *Task) Progress(message string) {
	status := wire.Progress
	if t.worker.version == 1 {
		status = wire.IgnoreMessage
	}
	_ = t.send(wire.Output{Message: []byte(message), Status: status}) // or it comes too late
}

// Log writes a record of this message to the daemon's log. The level is trace, debug, info, warn or
// error; a field "target" names the origin. To a version 1 daemon it goes over stderr, and so does what
// can't be sent: the task is answered already, or the record is too large. See also NewLogHandler, for
// log/slog, and [Task.Logger].
func (t *Task) Log(level, message string, fields ...Header) {
	if t.worker.version > 1 && t.sendLog(level, message, fields) == nil {
		return
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%s: %s", level, message)
	for _, field := range fields {
		fmt.Fprintf(&line, " %s=%v", field.Name, field.Value)
	}
	fmt.Fprintln(t.worker.stderr, line.String())
}

func (t *Task) sendLog(level, message string, fields []Header) error {
	headers := make([]Header, 0, len(fields)+1)
	headers = append(headers, Header{Name: "level", Value: level})
	for _, field := range fields {
		if field.Name == "level" {
			field.Name = "level_" // the record's own is another
		}
		headers = append(headers, field)
	}
	output := wire.Output{Message: []byte(message), Status: wire.Log, Headers: headers}
	err := t.send(output)
	if err == nil || errors.Is(err, errAnswered) {
		return err
	}
	for n, each := range headers {
		// What is no text, or of a type that MessagePack lacks, is told in words.
		text := strings.ToValidUTF8(fmt.Sprint(each.Value), "\uFFFD")
		headers[n] = Header{Name: strings.ToValidUTF8(each.Name, "\uFFFD"), Value: text}
	}
	return t.send(output)
}

// Logger returns a logger of the standard library whose lines are records of this message.
func (t *Task) Logger(level string) *log.Logger {
	return log.New(lineWriter{t, level}, "", 0)
}

type lineWriter struct {
	task  *Task
	level string
}

func (w lineWriter) Write(line []byte) (int, error) {
	w.task.Log(w.level, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func (t *Task) send(output wire.Output) error {
	output.ID = t.answers()
	return t.worker.writer.write(&output, t, false)
}

// What an output names that is about this task; version 1 names nothing.
func (t *Task) answers() *uint64 {
	if t.worker.version == 1 || !t.hasID {
		return nil
	}
	return &t.ID
}
