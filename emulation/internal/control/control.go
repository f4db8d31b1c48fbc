// Package control implements a Unix socket for commands from the user who started the program; other users have no access.
// Commands and answers are JSON objects, one a line.
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

// Reply holds the members that every answer has.
type Reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// OK is the answer to a command that succeeded and returns no data.
var OK = Reply{OK: true}

// Refusal returns the answer to a command that failed.
func Refusal(err error) Reply { return Reply{Error: err.Error()} }

// Commands maps the name of each command to its function. The function receives the whole JSON object of the command and
// returns the answer, to be encoded as JSON.
type Commands map[string]func(object []byte) any

// Socket is a bound control socket.
type Socket struct {
	net.Listener
	path string

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// maxPathBytes is the length of the longest path of a Unix socket, without the final NUL.
const maxPathBytes = len(syscall.RawSockaddrUnix{}.Path) - 1

// Listen binds a socket with mode 0600 at path. Commands are answered once Serve runs. Listen replaces the socket of a
// program that was killed. owner names the program in errors.
//
// The socket is bound in a private folder next to path and then moved, so that it never has another mode at path. The umask
// is no alternative: it applies to the whole process, where other goroutines may create folders at the same time.
func Listen(path, owner string) (*Socket, error) {
	if len(path) > maxPathBytes {
		return nil, fmt.Errorf("%s is longer than the %d bytes a socket's path may have; choose a shorter one", path, maxPathBytes)
	}
	if err := checkPath(path, owner); err != nil {
		return nil, err
	}
	listener, err := bindPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; choose a path in a folder that exists and that you may write to", path, err)
	}
	return &Socket{Listener: listener, path: path, conns: map[net.Conn]struct{}{}}, nil
}

// checkPath returns an error if path exists, except for a socket that no program listens on.
func checkPath(path, owner string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil // binding reports errors of the folder
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
	// Named by the folder's descriptor, since the folder's path may be too long for a socket.
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/socket", opened.Fd()), Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the socket is moved to path, where Socket.Close removes it
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

// Close ends Serve, closes all connections and removes the socket.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	_ = os.Remove(s.path) // before the listener closes, so that a socket at path always accepts connections
	for conn := range s.conns {
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
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		go func() {
			commands.serveConn(conn)
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		}()
	}
}

// maxLineBytes is the length of the longest command. It has room for a DNS name and 32 KiB of record data in hexadecimal.
const maxLineBytes = 1 << 17

func (c Commands) serveConn(conn net.Conn) {
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

// Execute runs the command of one line and returns the answer, to be encoded as JSON.
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
