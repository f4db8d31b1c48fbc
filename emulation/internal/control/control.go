// Package control is a Unix socket that takes commands from the user who started the program, and from nobody else:
// one JSON object a line, each answered by one.
package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Reply is what every answer begins with.
type Reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// OK is the answer to a command that has nothing to tell.
var OK = Reply{OK: true}

// Refusal is the answer to what cannot be done.
func Refusal(err error) Reply { return Reply{Error: err.Error()} }

// Commands are what each command does: it gets the whole object, and returns what is encoded as the answer.
type Commands map[string]func(object []byte) any

// Socket is a bound control socket.
type Socket struct {
	net.Listener
	path string

	mu     sync.Mutex
	talks  map[net.Conn]struct{}
	closed bool
}

// maxPathBytes is the longest path that clients can connect to.
const maxPathBytes = len(syscall.RawSockaddrUnix{}.Path) - 1

// Listen binds a socket of mode 0600 at path; nobody is answered before Serve. What a program that was killed left there
// is replaced. owner is the word for the program in errors.
//
// The mode is set before anybody can see the socket: it is bound in a private folder beside path and then moved. The
// umask, which would do as well, is the whole process's, and other goroutines make folders meanwhile.
func Listen(path, owner string) (*Socket, error) {
	if len(path) > maxPathBytes {
		return nil, fmt.Errorf("%s is longer than the %d bytes a socket's path may have; choose a shorter one", path, maxPathBytes)
	}
	if err := vacant(path, owner); err != nil {
		return nil, err
	}
	listener, err := bindPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; choose a path in a folder that exists and that you may write to", path, err)
	}
	return &Socket{Listener: listener, path: path, talks: map[net.Conn]struct{}{}}, nil
}

// vacant makes sure that there is nothing at path but, perhaps, a socket that nobody answers on any more.
func vacant(path, owner string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil // whatever is wrong with the folder, binding says it
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s exists and is no socket; choose another path", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return fmt.Errorf("%s belongs to a running %s; choose another path, or stop it", path, owner)
	}
	return nil
}

func bindPrivately(path string) (net.Listener, error) {
	folder, err := os.MkdirTemp(filepath.Dir(path), ".control-") // mode 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	opened, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	// By its descriptor, since the folder's own path may be too long for a socket.
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/socket", opened.Fd()), Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // it knows a name that is gone: Close removes the one it has
	made := filepath.Join(folder, "socket")
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}

// Close ends Serve and all conversations, and removes the socket.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	_ = os.Remove(s.path) // before the end: whoever finds the path is answered
	for conn := range s.talks {
		_ = conn.Close()
	}
	return s.Listener.Close()
}

// Serve answers commands until the socket is closed.
func (s *Socket) Serve(commands Commands) {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			_ = conn.Close()
		}
		s.talks[conn] = struct{}{}
		s.mu.Unlock()
		go func() {
			commands.converse(conn)
			s.mu.Lock()
			delete(s.talks, conn)
			s.mu.Unlock()
		}()
	}
}

// maxLineBytes is the longest command: an answer of the largest size, in hexadecimal, with room for its name.
const maxLineBytes = 1 << 17

func (c Commands) converse(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReaderSize(conn, maxLineBytes)
	answers := json.NewEncoder(conn)
	for {
		line, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			return
		}
		answer := any(Refusal(fmt.Errorf("a line has more than %d bytes", maxLineBytes)))
		if !tooLong {
			answer = c.Execute(bytes.TrimSuffix(line, []byte("\n")))
		}
		if answers.Encode(answer) != nil || err != nil {
			return
		}
	}
}

// Execute carries out the command of one line and returns the answer, to be encoded as JSON.
func (c Commands) Execute(line []byte) any {
	var named struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(line, &named); err != nil {
		return Refusal(fmt.Errorf("not a JSON object: %w", err))
	}
	if named.Command == "" {
		return Refusal(errors.New("no command"))
	}
	execute, known := c[named.Command]
	if !known {
		return Refusal(fmt.Errorf("unknown command %q", named.Command))
	}
	return execute(line)
}
