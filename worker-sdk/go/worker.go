package ganger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"ganger.invalid/worker-sdk/go/internal/wire"
)

const (
	readBytes     = 1 << 16
	lineBytesMax  = 1 << 16
	earlyMax      = 1000
	stackBytesMax = 8000
)

// A worker is one connection.
type worker struct {
	handler  Handler
	options  Options
	pipe     *net.UnixConn
	version  int
	stderr   io.Writer
	writer   *writer
	mutex    sync.Mutex
	inFlight map[uint64]context.CancelFunc
	// Cancellations that came before their messages: stdin and the pipe have no common order.
	early  map[uint64]struct{}
	broken error
}

func newWorker(handler Handler, options Options, pipe *net.UnixConn, version int, stderr io.Writer) *worker {
	return &worker{
		handler:  handler,
		options:  options,
		pipe:     pipe,
		version:  version,
		stderr:   stderr,
		writer:   newWriter(pipe, options.FrameBytesMax),
		inFlight: make(map[uint64]context.CancelFunc),
		early:    make(map[uint64]struct{}),
	}
}

func (w *worker) run(control io.Reader) error {
	defer w.pipe.Close()
	concurrency := 1
	if w.version > 1 {
		concurrency = w.options.Concurrency
		if err := w.writer.write(hello(concurrency)); err != nil {
			return err
		}
	}
	go w.listen(control)
	if concurrency == 1 {
		w.read(w.work)
	} else {
		w.readInto(concurrency)
	}
	w.writer.flushed()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.broken
}

func hello(concurrency int) *wire.Output {
	headers := []Header{
		{Name: "sdk", Value: "ganger-go"},
		{Name: "version", Value: version},
		{Name: "concurrency", Value: strconv.Itoa(concurrency)},
	}
	return &wire.Output{Status: wire.Hello, Headers: headers}
}

// -- reading --

// read takes what comes until the pipe ends, or is broken.
func (w *worker) read(each func(frame []byte)) {
	pipe := bufio.NewReaderSize(w.pipe, readBytes)
	for w.isSound() {
		frame, err := wire.ReadFrame(pipe, w.options.FrameBytesMax)
		var hostile *ProtocolError
		switch {
		case err == nil:
			each(frame)
		case errors.As(err, &hostile):
			w.fail(err)
		default:
			return // the end, or a daemon that is gone, which needs this worker no more
		}
	}
}

func (w *worker) readInto(concurrency int) {
	frames := make(chan []byte)
	var working sync.WaitGroup
	for n := 0; n < concurrency; n++ {
		working.Add(1)
		go func() {
			defer working.Done()
			for frame := range frames {
				w.work(frame)
			}
		}()
	}
	w.read(func(frame []byte) { frames <- frame })
	close(frames)
	working.Wait()
}

func (w *worker) isSound() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.broken == nil
}

func (w *worker) fail(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.broken == nil {
		w.broken = err
		w.leave()
	}
}

// leave: what has arrived is still read and worked on, then the pipe ends. Writing goes on.
func (w *worker) leave() { _ = w.pipe.CloseRead() }

// -- control lines --

func (w *worker) listen(control io.Reader) {
	lines := bufio.NewScanner(control)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		w.hear(strings.TrimSuffix(lines.Text(), "\r"))
	}
	w.leave()
}

func (w *worker) hear(line string) {
	switch {
	case line == quitLine:
		w.leave()
	case line == yieldLine && w.version == 1:
		w.mutex.Lock()
		defer w.mutex.Unlock()
		for _, cancel := range w.inFlight {
			cancel()
		}
	case strings.HasPrefix(line, cancelLine):
		if id, err := strconv.ParseUint(line[len(cancelLine):], 10, 64); err == nil {
			w.cancel(id)
		}
	}
}

func (w *worker) cancel(id uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if cancel, there := w.inFlight[id]; there {
		cancel()
		return
	}
	if len(w.early) >= earlyMax {
		for oldest := range w.early {
			delete(w.early, oldest)
			break
		}
	}
	w.early[id] = struct{}{}
}

// -- working --

func (w *worker) work(frame []byte) {
	input, err := wire.Decode(frame)
	if err != nil {
		w.fail(err)
		return
	}
	task := w.task(input)
	ctx, cancel := w.context(task)
	w.begin(task.ID, cancel)
	outcome, err := w.handle(ctx, task)
	gaveUp := err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err())
	w.end(task.ID)
	cancel()
	if gaveUp {
		outcome, err = Retry("cancelled"), nil
	}
	w.answer(task, outcome, err)
}

func (w *worker) task(input *wire.Input) *Task {
	task := &Task{
		Message:          input.Message,
		CorrelationID:    input.CorrelationID,
		Queue:            input.Queue,
		Headers:          input.Headers,
		Attempt:          int(input.Attempt),
		MillisecondsLeft: -1,
		Properties:       input.Properties,
		worker:           w,
	}
	if input.ID != nil {
		task.ID, task.hasID = *input.ID, true
	}
	if left := input.MillisecondsLeft; left != nil {
		task.MillisecondsLeft = math.MaxInt64
		if *left < math.MaxInt64 {
			task.MillisecondsLeft = int64(*left)
		}
	}
	return task
}

// Version 1 asks a worker to give up by itself; version 2 is told when it is so far.
func (w *worker) context(task *Task) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if w.options.Context != nil {
		ctx = w.options.Context(ctx, task.Headers)
	}
	ctx = context.WithValue(ctx, contextKey{}, task)
	if w.version == 1 {
		after, err := strconv.ParseInt(task.Headers["TimeoutMilliseconds"], 10, 64)
		if err == nil && after >= 0 && after < math.MaxInt64/int64(time.Millisecond) {
			return context.WithTimeout(ctx, time.Duration(after)*time.Millisecond)
		}
	}
	return context.WithCancel(ctx)
}

func (w *worker) begin(id uint64, cancel context.CancelFunc) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.inFlight[id] = cancel
	if _, there := w.early[id]; there {
		delete(w.early, id)
		cancel()
	}
}

func (w *worker) end(id uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.inFlight, id)
}

// handle makes an error of a panic.
func (w *worker) handle(ctx context.Context, task *Task) (outcome Outcome, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		stack := debug.Stack()
		if len(stack) > stackBytesMax {
			stack = stack[:stackBytesMax]
		}
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, stack)
		} else {
			// The handler ends its goroutine, which is this worker's: it answers all the same.
			w.answer(task, Outcome{}, fmt.Errorf("the handler has called runtime.Goexit\n%s", stack))
			w.fail(errors.New("a handler has called runtime.Goexit, which ends this worker"))
		}
	}()
	outcome, err = w.handler(ctx, task)
	returned = true
	return outcome, err
}

func (w *worker) answer(task *Task, outcome Outcome, err error) {
	id := task.answers()
	if err == nil {
		if outcome.Status == 0 {
			outcome.Status = wire.Done
		}
		err = w.writer.write(&wire.Output{
			Message: outcome.Message,
			Status:  outcome.Status,
			Headers: outcome.Headers,
			Queue:   outcome.Queue,
			ID:      id,
			AfterMs: outcome.after,
		})
	}
	if err == nil {
		return
	}
	reason := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(reason) > 2*stackBytesMax {
		reason = strings.ToValidUTF8(reason[:2*stackBytesMax], "") + "…"
	}
	failure := wire.Output{Message: []byte(reason), Status: wire.UnknownError, ID: id}
	if w.writer.write(&failure) != nil {
		// The pool's frames are shorter than what there is to say.
		failure.Message = nil
		_ = w.writer.write(&failure)
	}
}
