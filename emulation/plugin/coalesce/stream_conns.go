package coalesce

import (
	"net"
	"net/http"
	"sync"
)

// streamConns is the set of open TCP connections of an HTTP server.
type streamConns struct {
	mutex sync.Mutex
	open  map[net.Conn]struct{}
}

// track is the callback http.Server.ConnState.
func (s *streamConns) track(conn net.Conn, state http.ConnState) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch state {
	case http.StateNew:
		if s.open == nil {
			s.open = map[net.Conn]struct{}{}
		}
		s.open[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, conn)
	}
}

// close closes every open connection and returns their number.
func (s *streamConns) close() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for conn := range s.open {
		_ = conn.Close()
	}
	closed := len(s.open)
	clear(s.open)
	return closed
}
