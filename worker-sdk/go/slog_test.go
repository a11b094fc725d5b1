//go:build go1.21

package ganger_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	ganger "ganger.invalid/worker-sdk/go"
	"ganger.invalid/worker-sdk/go/gangertest"
)

func TestSlogWithAHandlersContextBecomesARecordOfItsMessage(t *testing.T) {
	var elsewhere bytes.Buffer
	logger := slog.New(ganger.NewLogHandler(slog.NewTextHandler(&elsewhere, nil)))
	handle := func(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
		logger.With("shop", 7).WithGroup("oven").WarnContext(ctx, "hot", "degrees", 90, slog.Group("at", "x", 1))
		logger.DebugContext(ctx, "below the level")
		logger.Info("outside")
		return ganger.Done(), nil
	}
	results, err := gangertest.Work(handle, ganger.Options{}, gangertest.Text("x"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := "[{hot map[level:warn oven.at.x:1 oven.degrees:90 shop:7] }]"
	if found := fmt.Sprint(results[0].Logs); found != wanted {
		t.Errorf("%s, not %s", found, wanted)
	}
	if !strings.Contains(elsewhere.String(), "outside") || strings.Contains(elsewhere.String(), "hot") {
		t.Error(elsewhere.String())
	}
}
