package ganger

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"ganger.invalid/worker-sdk/go/internal/wire"
)

// A Handler works on one message. Its context ends when the daemon asks to abandon the message: it took
// too long, or the daemon stops. What it answers then counts; the context's own error answers 429, with
// the limit if it took too long.
// With a concurrency above 1 several goroutines call it.
type Handler func(ctx context.Context, task *Task) (Outcome, error)

// A ProtocolError is what the daemon, or what pretends to be one, has sent against the protocol.
type ProtocolError = wire.ProtocolError

// Options of a worker; the zero value is good.
type Options struct {
	// Concurrency is how many messages are in hand at once; 0 counts as 1.
	Concurrency int
	// FrameBytesMax is the longest frame under a daemon that does not tell its own (in
	// GANGER_FRAME_BYTES_MAX); 0 counts as 64 MiB.
	FrameBytesMax int
	// WarmUp runs before the worker connects: start_timeout counts, timeout does not. An error ends Run.
	WarmUp func() error
	// Context makes a message's context of its headers, such as that of OpenTelemetry:
	//
	//	func(ctx context.Context, headers map[string]string) context.Context {
	//		return otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(headers))
	//	}
	Context func(ctx context.Context, headers map[string]string) context.Context
}

// Run connects to the daemon that has started this process, and works until it asks to leave. It
// returns when all that is in hand is answered. From then on nothing is to be read from stdin, by this
// process or its children: the daemon's lines come there.
func Run(handler Handler, options Options) error {
	return RunContext(context.Background(), handler, options)
}

// RunContext is [Run], and also ends when the context does: it begins no more messages, and returns when
// all that is in hand is answered. What comes meanwhile is given back, uncharged.
func RunContext(ctx context.Context, handler Handler, options Options) error {
	if told, err := strconv.Atoi(os.Getenv("GANGER_FRAME_BYTES_MAX")); err == nil && told > 0 {
		options.FrameBytesMax = told
	}
	if err := options.check(handler); err != nil {
		return err
	}
	name, control, err := control()
	if err != nil {
		return err
	}
	if options.WarmUp != nil {
		if err := options.WarmUp(); err != nil {
			return fmt.Errorf("the warm-up has failed: %w", err)
		}
	}
	pipe, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: pathOf(name), Net: "unix"})
	if err != nil {
		return err
	}
	return serve(ctx, handler, options, pipe, control, spoken())
}

// Serve is [Run] on a connection that is there already, which it closes, with the control lines and
// the version of the protocol. It is what package gangertest uses.
func Serve(handler Handler, options Options, pipe *net.UnixConn, control io.Reader, version int) error {
	return serve(context.Background(), handler, options, pipe, control, version)
}

func serve(
	ctx context.Context, handler Handler, options Options, pipe *net.UnixConn, control io.Reader, version int,
) error {
	if err := options.check(handler); err != nil {
		return err
	}
	if version != 1 && version != 2 {
		return fmt.Errorf("the protocol's version must be 1 or 2: %d", version)
	}
	worker := newWorker(ctx, handler, options, pipe, version, os.Stderr)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			worker.stop(nil)
		case <-ended:
		}
	}()
	return worker.run(control)
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
