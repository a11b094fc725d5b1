// The worker of ganger's own tests of this library: real daemon, real queue, workers killed.
// Arguments: the concurrency, the version. What it does is in the file $RECORD.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	ganger "ganger.invalid/worker-sdk/go"
)

type recorder struct{ file *os.File }

func (r recorder) note(event string, task *ganger.Task) {
	body := "bytes"
	if utf8.Valid(task.Message) {
		body = string(task.Message)
		if runes := []rune(body); len(runes) > 100 {
			body = string(runes[:100])
		}
	}
	attempt := "-"
	if task.Attempt > 0 {
		attempt = strconv.Itoa(task.Attempt)
	}
	line := fmt.Sprintf("%s\t%s\t%d\t%s\t%d\n", event, body, os.Getpid(), attempt, time.Now().UnixMicro())
	if _, err := r.file.WriteString(line); err != nil {
		log.Fatal(err)
	}
}

func (r recorder) handle(_ context.Context, task *ganger.Task) (ganger.Outcome, error) {
	r.note("began", task)
	time.Sleep(2 * time.Millisecond)
	outcome, err := chaos(task)
	if err == nil {
		r.note("done", task)
	}
	return outcome, err
}

func chaos(task *ganger.Task) (ganger.Outcome, error) {
	text := task.Text()
	switch {
	case !utf8.Valid(task.Message):
		return ganger.ReplyBytes(task.Message), nil
	case strings.HasPrefix(text, "shout: "):
		return ganger.Reply(strings.ToUpper(text)).WithHeader("colour", task.Headers["colour"]), nil
	case text == "raise":
		panic("no good")
	case text == "retry" && task.Attempt == 1:
		return ganger.Retry("later").After(10 * time.Millisecond), nil
	case text == "emit":
		return ganger.Done(), task.Emit("parts", "part", ganger.Header{Name: "n", Value: 1})
	case text == "log":
		task.Log("warn", "it is hot", ganger.Header{Name: "degrees", Value: 90})
		task.Progress("half way")
	}
	return ganger.Done(), nil
}

func main() {
	concurrency, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if err := os.Setenv("GANGER_PROTOCOL", os.Args[2]); err != nil {
		log.Fatal(err)
	}
	file, err := os.OpenFile(os.Getenv("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	if err := ganger.Run(recorder{file}.handle, ganger.Options{Concurrency: concurrency}); err != nil {
		log.Fatal(err)
	}
}
