// A worker that does nothing, for the benchmark of all languages. Its argument is how many tasks at once.
package main

import (
	"context"
	"log"
	"os"
	"strconv"

	ganger "ganger.invalid/worker-sdk/go"
)

func main() {
	concurrency, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	handle := func(context.Context, *ganger.Task) (ganger.Outcome, error) {
		return ganger.Done(), nil
	}
	if err := ganger.Run(handle, ganger.Options{Concurrency: concurrency}); err != nil {
		log.Fatal(err)
	}
}
