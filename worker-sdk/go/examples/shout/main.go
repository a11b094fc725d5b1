// A first worker: it answers in capitals.
package main

import (
	"context"
	"log"
	"strings"

	ganger "ganger.invalid/worker-sdk/go"
)

func shout(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
	return ganger.Reply(strings.ToUpper(task.Text()) + "!"), nil
}

func main() {
	if err := ganger.Run(shout, ganger.Options{Concurrency: 4}); err != nil {
		log.Fatal(err)
	}
}
