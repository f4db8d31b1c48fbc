// Package jsonl writes JSON Lines, one object a line. Each line is one unbuffered system call: readers find whole lines, and
// a program that is killed loses none.
package jsonl

import (
	"encoding/json"
	"io"
	"os"
	"sync"
)

// Writer writes JSON Lines. A nil Writer writes nothing.
type Writer struct {
	logf func(format string, values ...any)

	mu     sync.Mutex
	out    io.Writer
	failed bool
}

// New returns a Writer to out. It reports errors to logf, which is called like fmt.Printf.
func New(out io.Writer, logf func(format string, values ...any)) *Writer {
	return &Writer{out: out, logf: logf}
}

// Open returns a Writer that appends to a file. It creates the file with mode 0600 if it does not exist.
func Open(path string, logf func(format string, values ...any)) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // #nosec G304 -- the user names it
	if err != nil {
		return nil, err
	}
	return New(file, logf), nil
}

// Write writes one value as a line.
func (w *Writer) Write(value any) {
	if w == nil {
		return
	}
	line, err := json.Marshal(value)
	if err != nil {
		w.logf("a line cannot be written: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == nil {
		return
	}
	if _, err := w.out.Write(append(line, '\n')); err != nil && !w.failed {
		w.failed = true // reported once: on a full disk every line fails
		w.logf("lines are lost: %v", err)
	}
}

// Close closes the file. Lines that are written later are discarded without an error.
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
