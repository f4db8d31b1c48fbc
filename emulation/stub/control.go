package main

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
	net.Listener
	stub *stub
}

// reply is what every answer begins with.
type reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// listenControl binds the socket; nobody is answered before serve. What a killed stub left at path is replaced.
func listenControl(path string, s *stub) (*control, error) {
	if longest := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > longest {
		return nil, fmt.Errorf("%s is longer than the %d bytes a socket's path may have", path, longest)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("%s belongs to a running stub", path)
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
	return &control{Listener: listener, stub: s}, nil
}

func (c *control) serve() {
	for {
		conn, err := c.Accept()
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
	var command struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(line, &command); err != nil {
		return refusal(fmt.Errorf("not a JSON object: %w", err))
	}
	s := c.stub
	switch command.Command {
	case "ready":
		return struct {
			reply
			Listen     string     `json:"listen"`
			Upstream   string     `json:"upstream"`
			Protocol   protocol   `json:"protocol"`
			Resumption resumption `json:"resumption"`
		}{reply{OK: true}, s.udp.LocalAddr().String(), s.settings.url, s.settings.upstream.protocol, s.settings.resumption}
	case "reset-sessions", "forget":
		return struct {
			reply
			Closed int `json:"closed"`
		}{reply{OK: true}, s.reset(command.Command == "forget")}
	case "stats":
		return struct {
			reply
			Queries  uint64 `json:"queries"`
			Failures uint64 `json:"failures"`
			InFlight int    `json:"in_flight"`
			census
		}{reply{OK: true}, s.metrics.queries.Load(), s.metrics.failures.Load(), len(s.slots), s.upstream.census()}
	case "":
		return refusal(errors.New("no command"))
	}
	return refusal(fmt.Errorf("unknown command %q", command.Command))
}

func refusal(err error) reply { return reply{Error: err.Error()} }
