//go:build go1.21

package ganger

import (
	"context"
	"log/slog"
	"os"
)

// NewLogHandler returns a handler for log/slog: what is logged with a handler's context becomes a
// record of its message in the daemon's log. The rest goes to next, or to stderr if that is nil; the
// daemon logs that too.
//
//	slog.SetDefault(slog.New(ganger.NewLogHandler(nil)))
func NewLogHandler(next slog.Handler) slog.Handler {
	if next == nil {
		next = slog.NewTextHandler(os.Stderr, nil)
	}
	return &logHandler{next: next}
}

type logHandler struct {
	next   slog.Handler
	fields []Header
	prefix string
}

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *logHandler) Handle(ctx context.Context, record slog.Record) error {
	task := FromContext(ctx)
	if task == nil {
		return h.next.Handle(ctx, record)
	}
	fields := h.fields[:len(h.fields):len(h.fields)]
	record.Attrs(func(attr slog.Attr) bool {
		fields = appendAttr(fields, h.prefix, attr)
		return true
	})
	task.Log(levelName(record.Level), record.Message, fields...)
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := h.fields[:len(h.fields):len(h.fields)]
	for _, attr := range attrs {
		fields = appendAttr(fields, h.prefix, attr)
	}
	return &logHandler{h.next.WithAttrs(attrs), fields, h.prefix}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{h.next.WithGroup(name), h.fields, h.prefix + name + "."}
}

func appendAttr(fields []Header, prefix string, attr slog.Attr) []Header {
	value := attr.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if attr.Key != "" {
			prefix += attr.Key + "."
		}
		for _, inner := range value.Group() {
			fields = appendAttr(fields, prefix, inner)
		}
		return fields
	}
	if attr.Key == "" {
		return fields
	}
	return append(fields, Header{Name: prefix + attr.Key, Value: value.Any()})
}

func levelName(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "error"
	case level >= slog.LevelWarn:
		return "warn"
	case level >= slog.LevelInfo:
		return "info"
	case level >= slog.LevelDebug:
		return "debug"
	default:
		return "trace"
	}
}
