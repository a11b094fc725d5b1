package gangertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	ganger "ganger.invalid/worker-sdk/go"
	"ganger.invalid/worker-sdk/go/gangertest"
)

func shout(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
	if err := task.Emit("heard", task.Text()); err != nil {
		return ganger.Outcome{}, err
	}
	task.Progress("half way")
	task.Log("info", "shouting", ganger.Header{Name: "volume", Value: 11})
	return ganger.Reply(strings.ToUpper(task.Text())).WithHeader("loud", true).To("answers"), nil
}

func TestResultsInTheOrderOfTheMessages(t *testing.T) {
	var messages []gangertest.Message
	for n := 0; n < 500; n++ {
		messages = append(messages, gangertest.Text(fmt.Sprint("message ", n)))
	}
	for _, concurrency := range []int{0, 16} {
		results, err := gangertest.Work(shout, ganger.Options{Concurrency: concurrency}, messages...)
		if err != nil {
			t.Fatal(err)
		}
		for n, result := range results {
			wanted := fmt.Sprintf("{201 MESSAGE %d map[loud:true] answers <nil> [{message %d map[] heard}] "+
				"[{shouting map[level:info volume:11] }] [half way]}", n, n)
			text := string(result.Message)
			result.Message = nil
			if found := strings.Replace(fmt.Sprint(result), "[]", text, 1); found != wanted {
				t.Fatalf("%s, not %s", found, wanted)
			}
		}
	}
}

func TestEverythingOfAMessageReachesTheHandler(t *testing.T) {
	left := int64(100)
	message := gangertest.Message{
		Body: []byte{255}, Binary: true, CorrelationID: "c", Queue: "q", Headers: map[string]string{"a": "b"},
		Attempt: 3, MillisecondsLeft: &left, Properties: map[string]any{"row_id": 7},
	}
	var seen string
	handle := func(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
		if ganger.FromContext(ctx) != task || ganger.FromContext(context.Background()) != nil {
			return ganger.Outcome{}, errors.New("another task")
		}
		seen = fmt.Sprint(task.Message, task.CorrelationID, task.Queue, task.Headers, task.Attempt,
			task.MillisecondsLeft, task.Properties)
		return ganger.Outcome{}, nil
	}
	results, err := gangertest.Work(handle, ganger.Options{}, message)
	if err != nil || results[0].Status != 200 {
		t.Fatal(results, err)
	}
	if wanted := "[255]cqmap[a:b]3 100 map[row_id:7]"; strings.ReplaceAll(seen, " ", "") != strings.ReplaceAll(wanted, " ", "") {
		t.Error(seen)
	}
}

func TestCancellationAndTheMessagesOwnContext(t *testing.T) {
	type key struct{}
	options := ganger.Options{Context: func(ctx context.Context, headers map[string]string) context.Context {
		return context.WithValue(ctx, key{}, headers["traceparent"])
	}}
	soon := 10 * time.Millisecond
	message := gangertest.Message{CancelAfter: &soon, Headers: map[string]string{"traceparent": "00-1-2-01"}}
	results, err := gangertest.Work(func(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
		<-ctx.Done()
		return ganger.Retry(ctx.Value(key{}).(string)).After(time.Minute), nil
	}, options, message)
	if err != nil || string(results[0].Message) != "00-1-2-01" || *results[0].RetryAfterMs != 60_000 {
		t.Error(results, err)
	}
}

func TestVersion1(t *testing.T) {
	echo := func(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
		return ganger.ReplyBytes(task.Message), nil
	}
	options := ganger.Options{Concurrency: 4}
	results, err := gangertest.WorkVersion(1, echo, options, gangertest.Text("a"), gangertest.Text("b"))
	if err != nil || string(results[0].Message) != "a" || string(results[1].Message) != "b" {
		t.Error(results, err)
	}
}

func TestBadArgumentsAndMessagesAreTold(t *testing.T) {
	for wanted, try := range map[string]func() error{
		"a handler must be a function": func() error { return ganger.Run(nil, ganger.Options{}) },
		"Concurrency must be 1 or more: -1": func() error {
			return ganger.Run(shout, ganger.Options{Concurrency: -1})
		},
		"FrameBytesMax must be within": func() error {
			return ganger.Run(shout, ganger.Options{FrameBytesMax: -1})
		},
		`"5" must hold a number from 1`: func() error {
			_, err := gangertest.Work(shout, ganger.Options{}, gangertest.Message{Attempt: -1})
			var hostile *ganger.ProtocolError
			if !errors.As(err, &hostile) {
				return errors.New("another error")
			}
			return err
		},
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%v, not %s", err, wanted)
		}
	}
	results, err := gangertest.Work(func(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
		return ganger.Done(), task.Emit("", "x")
	}, ganger.Options{}, gangertest.Text(""))
	if err != nil || !strings.Contains(string(results[0].Message), "emit needs the name of a queue") {
		t.Error(results, err)
	}
}
