package stub

import (
	"context"
	"sync/atomic"
	"time"
)

// stuckAfter is how long a call of a library may continue after the end of its context before it counts as stuck.
const stuckAfter = 250 * time.Millisecond

// await returns the result of a call that should end with its context. ok is false if the call is stuck.
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

// watchdog limits the time of library calls for one connection. Go's HTTP/2 client can deadlock and then ignores contexts. A
// stuck connection is replaced. Its goroutines remain until the library returns.
type watchdog struct{ stuck atomic.Bool }

// call runs a function that should end with the context. If it is stuck, call returns the context's error.
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

// check evaluates a condition with a library call. It returns false if the call is stuck.
func (w *watchdog) check(condition func() bool) bool {
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
