package box

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// ownTimes holds measured processing times of a resolver, without the path, for cache hits and misses.
type ownTimes struct {
	HitMs  []float64 `json:"hit_ms"`
	MissMs []float64 `json:"miss_ms"`
	Seed   uint64    `json:"seed"`

	mu   sync.Mutex
	draw *rand.Rand
}

// readOwnTimes reads a JSON file of measured times.
func readOwnTimes(file string) (*ownTimes, error) {
	text, err := os.ReadFile(file) // #nosec G304 -- named by the Corefile
	if err != nil {
		return nil, err
	}
	o := new(ownTimes)
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(o.HitMs) == 0 || len(o.MissMs) == 0 {
		return nil, errors.New(file + " has no times of hits or none of misses")
	}
	for _, ms := range append(append([]float64{}, o.HitMs...), o.MissMs...) {
		if ms < 0 {
			return nil, errors.New(file + " has a negative time")
		}
	}
	o.draw = rand.New(rand.NewPCG(o.Seed, 0)) // #nosec G404 -- times of an emulation, which a seed repeats
	return o, nil
}

// wait blocks for one of the measured times, drawn at random. With a nil receiver it returns at once.
func (o *ownTimes) wait(hit bool) {
	if o == nil {
		return
	}
	o.mu.Lock()
	ms := o.MissMs
	if hit {
		ms = o.HitMs
	}
	duration := time.Duration(ms[o.draw.IntN(len(ms))] * float64(time.Millisecond))
	o.mu.Unlock()
	sleepExactly(duration)
}

// sleepExactly blocks the thread for a duration. Timers of the Go runtime are up to 1 ms late, the resolution of epoll's
// timeout.
func sleepExactly(duration time.Duration) {
	for end := time.Now().Add(duration); ; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		rest := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&rest, nil) // a signal can end it early
	}
}
