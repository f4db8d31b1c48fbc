package stub

import (
	"context"
	"sync/atomic"
	"time"
)

// stuckAfter is how long a call of a library may go on after its context has ended before it counts as stuck.
const stuckAfter = 250 * time.Millisecond

// await returns the result of a call that ends with its context; ok is false where the call is stuck.
func await[T any](ctx context.Context, results <-chan T) (got T, ok bool) {
	select {
	case got = <-results:
		return got, true
	case <-ctx.Done():
	}
	select {
	case got = <-results:
		return got, true
	case <-time.After(stuckAfter):
		return got, false
	}
}

// watchdog calls a library for one connection and returns in time where the library does not: Go's HTTP/2 client can lock
// itself for ever and then ignores contexts. A stuck connection is replaced; its goroutines stay as long as the library holds
// them.
type watchdog struct{ stuck atomic.Bool }

// call runs a function that ends with the context, or returns the context's error a moment after it.
func (w *watchdog) call(ctx context.Context, function func() ([]byte, error)) ([]byte, error) {
	if w.stuck.Load() {
		return nil, &broken{errStuck}
	}
	results := make(chan result, 1)
	go func() {
		wire, err := function()
		results <- result{wire, err}
	}()
	got, ok := await(ctx, results)
	if !ok {
		w.stuck.Store(true)
		return nil, ctx.Err()
	}
	return got.wire, got.err
}

// holds returns what a condition of the library is; false where the library is stuck.
func (w *watchdog) holds(condition func() bool) bool {
	if w.stuck.Load() {
		return false
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	results := make(chan bool, 1)
	go func() { results <- condition() }()
	holds, ok := await(ended, results)
	if !ok {
		w.stuck.Store(true)
	}
	return holds
}
