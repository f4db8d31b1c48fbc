package coalesce

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// control is a Unix socket that takes commands, one JSON object a line, and answers each with one.
type control struct {
	listener net.Listener
	server   *server
}

// command is a line from the client.
type command struct {
	Command  string `json:"command"`
	Listener string `json:"listener"`
	Mode     string `json:"mode"`
}

// reply is what every answer begins with.
type reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// listenControl binds the socket; nobody is answered before serve. What a killed server left at path is replaced.
func listenControl(path string, s *server) (*control, error) {
	if longest := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > longest {
		return nil, fmt.Errorf("%s is longer than the %d bytes a socket's path may have", path, longest)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("%s belongs to a running server", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	mask := syscall.Umask(0o177) // mode 0600 from the first moment
	listener, err := net.Listen("unix", path)
	syscall.Umask(mask)
	if err != nil {
		return nil, err
	}
	return &control{listener: listener, server: s}, nil
}

func (c *control) close() error { return c.listener.Close() }

func (c *control) serve() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.converse(conn)
	}
}

func (c *control) converse(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	answers := json.NewEncoder(conn)
	for lines.Scan() {
		if err := answers.Encode(c.execute(lines.Bytes())); err != nil {
			return
		}
	}
}

// execute carries out one command and returns the answer, to be encoded as JSON.
func (c *control) execute(line []byte) any {
	var cmd command
	if err := json.Unmarshal(line, &cmd); err != nil {
		return refusal(fmt.Errorf("not a JSON object: %w", err))
	}
	s := c.server
	switch cmd.Command {
	case "ready":
		return struct {
			reply
			Listeners []listening `json:"listeners"`
		}{reply{OK: true}, s.listening}
	case "close-connections":
		if _, ok := noError[cmd.Listener]; !ok && cmd.Listener != "" {
			return refusal(fmt.Errorf("unknown listener %q", cmd.Listener))
		}
		return struct {
			reply
			Closed int `json:"closed"`
		}{reply{OK: true}, s.connections.close(cmd.Listener)}
	case "rotate-ticket-keys":
		s.tickets.rotate()
		return reply{OK: true}
	case "early-data":
		mode, err := parseEarlyData(cmd.Mode)
		if err != nil {
			return refusal(err)
		}
		s.mode.Store(int32(mode))
		return reply{OK: true}
	case "stats":
		totals := s.events.totals()
		return struct {
			reply
			Open        map[string]int `json:"open"`
			Connections map[string]int `json:"connections"`
			Requests    map[string]int `json:"requests"`
			Queries     map[string]int `json:"queries"`
		}{reply{OK: true}, s.connections.count(), totals["connections"], totals["requests"], totals["queries"]}
	case "":
		return refusal(errors.New("no command"))
	}
	return refusal(fmt.Errorf("unknown command %q", cmd.Command))
}

func refusal(err error) reply { return reply{Error: err.Error()} }
