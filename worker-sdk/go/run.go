package ganger

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"ganger.invalid/worker-sdk/go/internal/wire"
)

// A Handler works on one message. Its context ends when the daemon asks to abandon the message: it took
// too long, or the daemon stops. What it answers then counts; the context's own error answers 429.
// With a concurrency above 1 several goroutines call it.
type Handler func(ctx context.Context, task *Task) (Outcome, error)

// A ProtocolError is what the daemon, or what pretends to be one, has sent against the protocol.
type ProtocolError = wire.ProtocolError

// Options of a worker; the zero value is good.
type Options struct {
	// Concurrency is how many messages are in hand at once; 0 counts as 1.
	Concurrency int
	// FrameBytesMax is that of the pool; 0 counts as 64 MiB.
	FrameBytesMax int
	// Context makes a message's context of its headers, such as that of OpenTelemetry:
	//
	//	func(ctx context.Context, headers map[string]string) context.Context {
	//		return otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(headers))
	//	}
	Context func(ctx context.Context, headers map[string]string) context.Context
}

// Run connects to the daemon that has started this process, and works until it asks to leave. It
// returns when all that is in hand is answered.
func Run(handler Handler, options Options) error {
	if err := options.check(handler); err != nil {
		return err
	}
	pipe, control, err := connect()
	if err != nil {
		return err
	}
	return Serve(handler, options, pipe, control, spoken())
}

// Serve is [Run] on a connection that is there already, which it closes, with the control lines and
// the version of the protocol. It is what package gangertest uses.
func Serve(handler Handler, options Options, pipe *net.UnixConn, control io.Reader, version int) error {
	if err := options.check(handler); err != nil {
		return err
	}
	if version != 1 && version != 2 {
		return fmt.Errorf("the protocol's version must be 1 or 2: %d", version)
	}
	return newWorker(handler, options, pipe, version, os.Stderr).run(control)
}

func (o *Options) check(handler Handler) error {
	if handler == nil {
		return fmt.Errorf("a handler must be a function: nil")
	}
	if o.Concurrency < 0 {
		return fmt.Errorf("Concurrency must be 1 or more: %d", o.Concurrency)
	}
	if o.FrameBytesMax < 0 || int64(o.FrameBytesMax) > 0x7fffffff {
		return fmt.Errorf("FrameBytesMax must be within 1 and 2147483647: %d", o.FrameBytesMax)
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.FrameBytesMax == 0 {
		o.FrameBytesMax = wire.FrameBytesMax
	}
	return nil
}
