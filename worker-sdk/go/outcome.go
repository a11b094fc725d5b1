package ganger

import (
	"time"

	"ganger.invalid/worker-sdk/go/internal/wire"
)

// An Outcome is what a handler says became of its message. Make one by [Done], [Reply] and so on; by
// hand, to answer a status that the pool's configuration gives a meaning ([pools.statuses]).
type Outcome struct {
	Status  int      // 0 counts as that of Done
	Message []byte   // the reply, or the reason of a failure
	Headers []Header // of the reply
	Queue   string   // where the reply goes, if not to the message's own reply-to

	after *uint64
}

// A Header of a reply or an emit. The daemon reads each value in its text form.
type Header = wire.Header

// Done: the message leaves its queue.
func Done() Outcome { return Outcome{Status: wire.Done} }

// Reply: the work is done, and this is its result. It is published to the message's reply-to, or to
// where [Outcome.To] says, before the message leaves its queue. With To(task.Queue) a long task hands
// on what is left.
func Reply(message string) Outcome { return ReplyBytes([]byte(message)) }

// ReplyBytes is [Reply] with a message that may be no text.
func ReplyBytes(message []byte) Outcome {
	return Outcome{Status: wire.DoneWithReply, Message: message}
}

// Retry: it failed for now, and is tried again after the pool's own wait or after that of
// [Outcome.After]. An attempt is charged; after the last one the message is a dead letter with this reason.
func Retry(reason string) Outcome { return Outcome{Status: wire.Retry, Message: []byte(reason)} }

// Reject: it can never work. The message becomes a dead letter with this reason, now.
func Reject(reason string) Outcome { return Outcome{Status: wire.Reject, Message: []byte(reason)} }

// Requeue: not here, not now. It is handed out again after a short wait; no attempt is charged.
func Requeue(reason string) Outcome { return Outcome{Status: wire.Requeue, Message: []byte(reason)} }

// To says where a reply goes.
func (o Outcome) To(queue string) Outcome {
	o.Queue = queue
	return o
}

// WithHeader adds a header to a reply.
func (o Outcome) WithHeader(name string, value any) Outcome {
	o.Headers = append(o.Headers[:len(o.Headers):len(o.Headers)], Header{Name: name, Value: value})
	return o
}

// After says how long a retry is to wait; less than a millisecond, or less than nothing, is at once.
func (o Outcome) After(wait time.Duration) Outcome {
	milliseconds := uint64(0)
	if wait > 0 {
		milliseconds = uint64(wait.Milliseconds())
	}
	o.after = &milliseconds
	return o
}
