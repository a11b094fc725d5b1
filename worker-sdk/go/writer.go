package ganger

import (
	"errors"
	"net"
	"sync"

	"ganger.invalid/worker-sdk/go/internal/wire"
)

// So much may wait for the pipe; who has more to say waits with it.
const waitingBytesMax = 1 << 20

var errAnswered = errors.New("its message is answered already")

// A writer takes frames from any goroutine. Those that wait for each other go out in one write.
type writer struct {
	pipe          *net.UnixConn
	frameBytesMax int

	mutex   sync.Mutex
	room    sync.Cond
	waiting []byte
	spare   []byte
	writing bool
}

func newWriter(pipe *net.UnixConn, frameBytesMax int) *writer {
	w := &writer{pipe: pipe, frameBytesMax: frameBytesMax}
	w.room.L = &w.mutex
	return w
}

// write fails if the output can't be sent as it is. A daemon that is gone is no error: the end of the
// pipe says so. What is about a task is sent while that is in hand only: the daemon ends a worker that
// emits for one that is not. The last of it ends that.
func (w *writer) write(output *wire.Output, about *Task, last bool) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for w.writing && len(w.waiting) > waitingBytesMax {
		w.room.Wait()
	}
	if about != nil && about.over {
		return errAnswered
	}
	var err error
	if w.waiting, err = wire.Append(w.waiting, output, w.frameBytesMax); err != nil {
		return err
	}
	if last {
		about.over = true
	}
	if w.writing {
		return nil
	}
	w.writing = true
	for len(w.waiting) > 0 {
		data := w.waiting
		w.waiting, w.spare = w.spare[:0], nil
		w.mutex.Unlock()
		_, _ = w.pipe.Write(data)
		w.mutex.Lock()
		if cap(data) <= waitingBytesMax {
			w.spare = data
		}
		w.room.Broadcast()
	}
	w.writing = false
	w.room.Broadcast()
	return nil
}

// flushed waits until nothing waits.
func (w *writer) flushed() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for w.writing {
		w.room.Wait()
	}
}
