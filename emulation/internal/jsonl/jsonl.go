// Package jsonl writes JSON Lines: one object a line, each with one system call and nothing buffered, so that a reader
// finds whole lines and whoever is killed loses none.
package jsonl

import (
	"encoding/json"
	"io"
	"os"
	"sync"
)

// Writer writes lines. A nil Writer writes nothing.
type Writer struct {
	complain func(format string, values ...any)

	mu     sync.Mutex
	out    io.Writer
	failed bool
}

// New writes to out, and tells complain, like fmt.Printf, what could not be written.
func New(out io.Writer, complain func(format string, values ...any)) *Writer {
	return &Writer{out: out, complain: complain}
}

// Open appends to a file that only its owner may read.
func Open(path string, complain func(format string, values ...any)) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // #nosec G304 -- the user names it
	if err != nil {
		return nil, err
	}
	return New(file, complain), nil
}

// Write writes one value as a line.
func (w *Writer) Write(value any) {
	if w == nil {
		return
	}
	line, err := json.Marshal(value)
	if err != nil {
		w.complain("a line cannot be written: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == nil {
		return
	}
	if _, err := w.out.Write(append(line, '\n')); err != nil && !w.failed {
		w.failed = true // said once: a full disk would fill the log as well
		w.complain("lines are lost: %v", err)
	}
}

// Close closes the file; what is written later is lost without a word.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	closer, ok := w.out.(io.Closer)
	w.out = nil
	if !ok {
		return nil
	}
	return closer.Close()
}
