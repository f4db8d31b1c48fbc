package coalesce

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
)

func TestEventsAreWholeLines(t *testing.T) {
	path := t.TempDir() + "/events"
	log := newEventLog()
	if err := log.open(path); err != nil {
		t.Fatal(err)
	}
	defer log.close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				log.write(queryEvent{Event: "query", Listener: "doq", Name: strings.Repeat("x", 300)})
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(path) // before the file is closed: nothing is buffered
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 400 || log.totals()["queries"]["doq"] != 400 {
		t.Errorf("%d lines, %v", len(lines), log.totals())
	}
	for _, line := range lines {
		if err := json.Unmarshal([]byte(line), new(queryEvent)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
}

// Events that cannot be written are counted, and the server continues.
func TestEventsOnAFullDisk(t *testing.T) {
	log := newEventLog()
	if err := log.open("/dev/full"); err != nil {
		t.Skipf("no /dev/full here: %v", err)
	}
	defer log.close()
	for range 3 {
		log.write(queryEvent{Event: "query", Listener: "doq"})
	}
	if log.totals()["queries"]["doq"] != 3 {
		t.Errorf("%v", log.totals())
	}
}
