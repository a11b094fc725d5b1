package main

import (
	"testing"

	ganger "ganger.invalid/worker-sdk/go"
	"ganger.invalid/worker-sdk/go/gangertest"
)

// The handler in a real worker, without a daemon.
func TestGreet(t *testing.T) {
	for _, test := range []struct {
		body, wanted string
		status       int
	}{
		{"world", "Hello, world!", 201},
		{"", "nobody to greet", 400},
	} {
		results, err := gangertest.Work(greet, ganger.Options{}, gangertest.Text(test.body))
		if err != nil {
			t.Fatal(err)
		}
		if result := results[0]; result.Status != test.status || string(result.Message) != test.wanted {
			t.Errorf("%q: %d %s", test.body, result.Status, result.Message)
		}
	}
}
