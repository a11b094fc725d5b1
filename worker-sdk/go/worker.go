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
	inFlight map[uint64]*Task
	// Cancellations that came before their messages: stdin and the pipe have no common order.
	early  map[uint64]struct{}
	broken error
	// Whether nothing new is begun, and why; how many are in hand, and what came meanwhile.
	stopping context.Context
	ending   bool
	reason   error
	inHand   int
	held     map[uint64]*Task
}

func newWorker(
	stopping context.Context, handler Handler, options Options, pipe *net.UnixConn, version int, stderr io.Writer,
) *worker {
	return &worker{
		handler:  handler,
		options:  options,
		pipe:     pipe,
		version:  version,
		stderr:   stderr,
		writer:   newWriter(pipe, options.FrameBytesMax),
		inFlight: make(map[uint64]*Task),
		early:    make(map[uint64]struct{}),
		stopping: stopping,
		held:     make(map[uint64]*Task),
	}
}

func (w *worker) run(control io.Reader) error {
	defer w.pipe.Close()
	concurrency := 1
	if w.version > 1 {
		concurrency = w.options.Concurrency
		if err := w.writer.write(hello(concurrency), nil, false); err != nil {
			return err
		}
	}
	go w.listen(control)
	if concurrency == 1 {
		w.read(w.work)
	} else {
		w.readInto(concurrency)
	}
	w.giveBackHeld()
	w.writer.flushed()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.broken != nil {
		return w.broken
	}
	return w.reason
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
	var work func()
	work = func() {
		ended := false
		defer func() {
			if !ended {
				go work() // by runtime.Goexit: what was handed over must find somebody
				return
			}
			working.Done()
		}()
		for frame := range frames {
			w.work(frame)
		}
		ended = true
	}
	for n := 0; n < concurrency; n++ {
		working.Add(1)
		go work()
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

// stop begins nothing new, and has the worker end once all that is in hand is answered.
func (w *worker) stop(reason error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.ending = true
	if w.reason == nil {
		w.reason = reason
	}
	if w.inHand == 0 {
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
		for _, task := range w.inFlight {
			task.cancel()
		}
	case strings.HasPrefix(line, cancelLine):
		if id, err := strconv.ParseUint(line[len(cancelLine):], 10, 64); err == nil {
			w.cancel(id)
		}
	}
}

func (w *worker) cancel(id uint64) {
	if held := w.cancelled(id); held != nil {
		w.giveBack(held)
	}
}

// cancelled cancels what is in flight, or gives what is held, which is held no more.
func (w *worker) cancelled(id uint64) *Task {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if held, there := w.held[id]; there {
		delete(w.held, id)
		return held
	}
	if task, there := w.inFlight[id]; there {
		// The daemon's clock began a little before this one.
		task.timedOut = task.limit >= 0 && time.Since(task.begun) >= task.limit-task.limit/10
		task.cancel()
		return nil
	}
	if len(w.early) >= earlyMax {
		for oldest := range w.early {
			delete(w.early, oldest)
			break
		}
	}
	w.early[id] = struct{}{}
	return nil
}

// -- working --

func (w *worker) work(frame []byte) {
	input, err := wire.Decode(frame)
	if err != nil {
		w.fail(err)
		return
	}
	task := w.task(input)
	if !w.take(task) {
		return
	}
	defer w.putDown()
	ctx := w.context(task)
	w.begin(task)
	outcome, err := w.handle(ctx, task)
	reason, gaveUp := told(ctx, err)
	w.end(task.ID)
	task.timedOut = task.timedOut || ctx.Err() == context.DeadlineExceeded
	task.cancel()
	switch {
	case gaveUp:
		w.answer(task, Retry(task.whyCancelled()+"\n"+reason))
	case err != nil:
		w.fails(task, reason)
	default:
		w.answer(task, outcome)
	}
}

// take has a task in hand, unless this worker is about to end: then it waits to be given back, until it is
// cancelled at the latest. The reading end stays open until nothing is in hand, for a daemon that can't
// write any more takes the worker for lost, with all that it works on.
func (w *worker) take(task *Task) bool {
	w.mutex.Lock()
	w.ending = w.ending || w.stopping.Err() != nil
	if !w.ending {
		w.inHand++
		w.mutex.Unlock()
		return true
	}
	_, cancelled := w.early[task.ID]
	delete(w.early, task.ID)
	if !cancelled {
		w.held[task.ID] = task
	}
	w.mutex.Unlock()
	if cancelled {
		w.giveBack(task)
	}
	return false
}

func (w *worker) putDown() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.inHand--
	if w.ending && w.inHand == 0 {
		w.leave()
	}
}

// giveBackHeld is for the end, when nothing more comes.
func (w *worker) giveBackHeld() {
	w.mutex.Lock()
	held := w.held
	w.held = nil
	w.mutex.Unlock()
	for _, task := range held {
		w.giveBack(task)
	}
}

func (w *worker) giveBack(task *Task) { w.answer(task, Requeue("the worker is about to end")) }

// told is an error's text, and whether it is that of the task's own end. An error may panic when it is
// asked, as a nil pointer in it does.
func told(ctx context.Context, err error) (reason string, gaveUp bool) {
	if err == nil {
		return "", false
	}
	defer func() {
		if worse := recover(); worse != nil {
			reason, gaveUp = fmt.Sprintf("an error of the type %T, whose text panics: %v", err, worse), false
		}
	}()
	return err.Error(), ctx.Err() != nil && errors.Is(err, ctx.Err())
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
func (w *worker) context(task *Task) context.Context {
	ctx := context.Background()
	if w.options.Context != nil {
		ctx = w.options.Context(ctx, task.Headers)
	}
	ctx = context.WithValue(ctx, contextKey{}, task)
	task.begun, task.limit = time.Now(), -1
	after, err := strconv.ParseInt(task.Headers["TimeoutMilliseconds"], 10, 64)
	hasLimit := err == nil && after >= 0 && after < math.MaxInt64/int64(time.Millisecond)
	if hasLimit {
		task.limit = time.Duration(after) * time.Millisecond
	}
	if w.version == 1 && hasLimit {
		ctx, task.cancel = context.WithTimeout(ctx, task.limit)
	} else {
		ctx, task.cancel = context.WithCancel(ctx)
	}
	return ctx
}

func (t *Task) whyCancelled() string {
	if t.timedOut {
		return fmt.Sprintf("timed out: the limit is %d ms", t.limit.Milliseconds())
	}
	return "cancelled"
}

func (w *worker) begin(task *Task) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.inFlight[task.ID] = task
	if _, there := w.early[task.ID]; there {
		delete(w.early, task.ID)
		task.cancel()
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
			w.stop(errors.New("a handler has called runtime.Goexit, which ends this worker"))
			w.fails(task, fmt.Sprintf("the handler has called runtime.Goexit\n%s", stack))
		}
	}()
	outcome, err = w.handler(ctx, task)
	returned = true
	return outcome, err
}

// answer makes a failure of an outcome that can't be sent.
func (w *worker) answer(task *Task, outcome Outcome) {
	switch {
	case outcome.Status == 0:
		outcome.Status = wire.Done
	case outcome.Status == wire.IgnoreMessage || outcome.Status/100 == 1:
		w.fails(task, fmt.Sprintf("an Outcome's Status must be one that ends a message: %d", outcome.Status))
		return
	}
	err := w.writer.write(&wire.Output{
		Message: outcome.Message,
		Status:  outcome.Status,
		Headers: outcome.Headers,
		Queue:   outcome.Queue,
		ID:      task.answers(),
		AfterMs: outcome.after,
	}, task, true)
	if err != nil {
		w.fails(task, err.Error())
	}
}

func (w *worker) fails(task *Task, reason string) {
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	if len(reason) > 2*stackBytesMax {
		reason = strings.ToValidUTF8(reason[:2*stackBytesMax], "") + "…"
	}
	failure := wire.Output{Message: []byte(reason), Status: wire.UnknownError, ID: task.answers()}
	if w.writer.write(&failure, task, true) != nil {
		// The pool's frames are shorter than what there is to say.
		failure.Message = nil
		_ = w.writer.write(&failure, task, true)
	}
}
