package ganger

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

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

// EmitBytes is [Task.Emit] with a message that may be no text.
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
	_ = t.send(wire.Output{Message: []byte(message), Status: status}) // a text can be sent
}

// Log writes a record of this message to the daemon's log. The level is trace, debug, info, warn or
// error; a field "target" names the origin. To a version 1 daemon it goes over stderr. See also
// NewLogHandler, for log/slog, and [Task.Logger].
func (t *Task) Log(level, message string, fields ...Header) {
	if t.worker.version == 1 {
		var line strings.Builder
		fmt.Fprintf(&line, "%s: %s", level, message)
		for _, field := range fields {
			fmt.Fprintf(&line, " %s=%v", field.Name, field.Value)
		}
		fmt.Fprintln(t.worker.stderr, line.String())
		return
	}
	headers := append([]Header{{Name: "level", Value: level}}, fields...)
	output := wire.Output{Message: []byte(message), Status: wire.Log, Headers: headers}
	if t.send(output) == nil {
		return
	}
	for n := range headers {
		headers[n].Value = fmt.Sprint(headers[n].Value) // of a type that MessagePack lacks
	}
	_ = t.send(output) // texts can be sent
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
	return t.worker.writer.write(&output)
}

// What an output names that is about this task; version 1 names nothing.
func (t *Task) answers() *uint64 {
	if t.worker.version == 1 || !t.hasID {
		return nil
	}
	return &t.ID
}
