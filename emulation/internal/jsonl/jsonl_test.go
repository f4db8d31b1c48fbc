package jsonl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestWholeLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	w, err := Open(path, t.Errorf)
	if err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for range 8 {
		writing.Go(func() {
			for range 50 {
				w.Write(map[string]string{"text": strings.Repeat("x", 300)})
			}
		})
	}
	writing.Wait()
	text, err := os.ReadFile(path) // before the file is closed: nothing is buffered
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 400 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("%q", line)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestFullDiskIsReportedOnce(t *testing.T) {
	messages := 0
	w, err := Open("/dev/full", func(string, ...any) { messages++ })
	if err != nil {
		t.Skipf("no /dev/full here: %v", err)
	}
	for range 3 {
		w.Write(1)
	}
	if messages != 1 {
		t.Errorf("%d messages", messages)
	}
}

func TestNothingIsWrittenByNobodyAndAfterTheEnd(t *testing.T) {
	var none *Writer
	none.Write(1)
	if err := none.Close(); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "lines")
	w, err := Open(path, t.Errorf)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	w.Write(1)
	if text, err := os.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("%q, %v", text, err)
	}
}
