// A worker for ganger: it greets whoever is named in the message.
package main

import (
	"context"
	"log"

	ganger "ganger.invalid/worker-sdk/go"
)

func greet(_ context.Context, task *ganger.Task) (ganger.Outcome, error) {
	if task.Text() == "" {
		return ganger.Reject("nobody to greet"), nil // never tried again: a dead letter
	}
	return ganger.Reply("Hello, " + task.Text() + "!"), nil
}

func main() {
	if err := ganger.Run(greet, ganger.Options{}); err != nil {
		log.Fatal(err)
	}
}
