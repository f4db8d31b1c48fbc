package stub

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// If the upstream resets a DoQ stream, the query is repeated once on the same connection.
func TestStreamThatIsResetIsAskedOnceMore(t *testing.T) {
	c := newCredentials(t)
	s := newServer(t, "quic", c)
	var streams atomic.Int32
	s.stream = func(_ *quic.Conn, stream *quic.Stream) {
		query, err := readMessage(stream)
		if err != nil {
			return
		}
		if streams.Add(1) == 2 {
			stream.CancelWrite(doqRequestCancelled)
			return
		}
		_, _ = stream.Write(framed(s.answer(query)))
		_ = stream.Close()
	}
	r := startStub(t, s.start().url(), c)
	r.good("www.example.org")
	if again := r.good("www.example.org"); again.Retries != 1 || again.Connection != 1 || again.NewConnection {
		t.Errorf("%+v", again)
	}
	if next := r.good("www.example.org"); next.Retries != 0 || next.Connection != 1 {
		t.Errorf("%+v", next)
	}
}

// If a QUIC connection acknowledges packets but delivers no answer, the query is also sent over a new one within its timeout.
func TestWedgedConnectionOfQUIC(t *testing.T) {
	for _, answered := range []int32{0, 1} { // answers before the connection stops answering
		t.Run(fmt.Sprint(answered), func(t *testing.T) {
			eachScheme(t, overQUIC, func(t *testing.T, s *server, c credentials) {
				t.Parallel() // most of the time is waiting
				good := s.answer
				var answers atomic.Int32
				s.answer = func(query []byte) []byte {
					if s.accepted.Load() == 1 && answers.Add(1) > answered {
						return nil
					}
					return good(query)
				}
				r := startStub(t, s.start().url(), c, "--timeout", "2s")
				for range answered {
					r.good("www.example.org")
				}
				again := r.good("www.example.org")
				if again.Retries != 1 || again.Connection != 2 || again.TotalMs > 2000 {
					t.Errorf("%+v", again)
				}
				if next := r.good("www.example.org"); next.Retries != 0 || next.Connection != 2 || next.NewConnection {
					t.Errorf("and then %+v", next)
				}
				until(t, "the wedged connection to be closed", func() bool { return r.upstream.stats().Open == 1 })
			})
		})
	}
}

// sometimesOdd is a listener that passes some connections to the function odd and returns the others.
type sometimesOdd struct {
	net.Listener
	isOdd func() bool
	odd   func(net.Conn)
}

func (l *sometimesOdd) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || !l.isOdd() {
			return conn, err
		}
		go l.odd(conn)
	}
}

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	h2Data         = 0
	h2Headers      = 1
	h2Reset        = 3
	h2Settings     = 4
	h2PushPromise  = 5
	h2Ping         = 6
	h2GoAway       = 7
	h2WindowUpdate = 8
	h2Continuation = 9
)

// frame returns a frame of HTTP/2 (RFC 9113, section 4.1).
func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

// serveFrames serves an HTTP/2 connection. It calls answer for each request, which writes frames; an error ends the connection.
func serveFrames(socket net.Conn, config *tls.Config, settings []byte, answer func(conn net.Conn, stream uint32) error) {
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	conn := tls.Server(socket, config)
	defer conn.Close()
	_, _ = io.CopyN(io.Discard, conn, 24) // the preface
	_, _ = conn.Write(frame(h2Settings, 0, 0, settings...))
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
		if head[3] == h2Headers {
			if err := answer(conn, binary.BigEndian.Uint32(head[5:])); err != nil {
				return
			}
		}
	}
}

// A flow-control window that overflows makes Go's HTTP/2 client deadlock. The query still ends in time, the next one uses a
// new connection, and the stub can be closed.
func TestHTTPClientThatLocksItself(t *testing.T) {
	largest := []byte{0x7f, 0xff, 0xff, 0xff}
	for name, c := range map[string]struct{ settings, update []byte }{
		"WINDOW_UPDATE": {nil, largest},
		"SETTINGS":      {append([]byte{0, 4}, largest...), []byte{0, 0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			secrets := newCredentials(t)
			s := newServer(t, "https", secrets)
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			odd := func(socket net.Conn) {
				serveFrames(socket, secrets.config, c.settings, func(conn net.Conn, stream uint32) error {
					_, err := conn.Write(frame(h2WindowUpdate, 0, stream, c.update...))
					return err
				})
			}
			var accepted atomic.Int32
			listener := &sometimesOdd{plain, func() bool { return accepted.Add(1) == 1 }, odd}
			web := &http.Server{Handler: http.HandlerFunc(s.serveHTTP), TLSConfig: secrets.config.Clone(), ErrorLog: quiet}
			go func() { _ = web.ServeTLS(listener, "", "") }()
			defer web.Close()

			r := startStub(t, "https://"+plain.Addr().String(), secrets, "--timeout", "1s")
			_, row := r.ask("www.example.org")
			if row.Error == "" || row.Rcode != "SERVFAIL" || row.TotalMs > 2000 {
				t.Errorf("%+v", row)
			}
			if next := r.good("www.example.org"); next.Connection != 2 {
				t.Errorf("%+v", next)
			}
			closed := make(chan struct{})
			go func() { r.close(); close(closed) }()
			select {
			case <-closed:
			case <-time.After(5 * time.Second):
				t.Error("the stub does not end")
			}
		})
	}
}

// A TCP connection with many unanswered queries is replaced before its IDs run out.
func TestUnansweredIDsDoNotPileUp(t *testing.T) {
	s := newServer(t, "tcp", newCredentials(t))
	good := s.answer
	s.answer = func(query []byte) []byte {
		if strings.Contains(string(query), "silent") {
			return nil
		}
		return good(query)
	}
	r := startStub(t, s.start().url(), newCredentials(t))
	r.good("www.example.org")
	session := r.upstream.(*session)
	session.mu.Lock()
	stream := session.current.conn.(*streamConn)
	session.mu.Unlock()
	for range maxUnanswered {
		ignored := make(chan result, 1)
		id, err := stream.register(ignored)
		if err != nil {
			t.Fatal(err)
		}
		stream.unregister(id, ignored)
	}
	if next := r.good("www.example.org"); next.Connection != 2 || next.Retries != 0 {
		t.Errorf("%+v", next)
	}
}

// Cancelled requests of a browser leave no open streams, neither to the gateway nor to the upstream.
func TestRequestsThatBrowsersCancelEnd(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	g := startGateway(t, separateConnection, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/large") {
			_, _ = io.WriteString(w, large)
		}
		if strings.HasPrefix(r.URL.Path, "/slow") {
			<-r.Context().Done()
			return
		}
		respondPath(w, r)
	})
	for n := range 3 * maxRequests {
		path := map[int]string{0: "/", 1: "/large", 2: "/slow"}[n%3]
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+serverName+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := g.browser.Do(request); err == nil {
			response.Body.Close() // unread
		}
		cancel()
	}
	if response, body := g.get(serverName, "/after"); response.StatusCode != http.StatusOK || body != "/after" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	if carried := g.carriedRequests(); len(carried) != 1 {
		t.Errorf("requests by port: %v", carried)
	}
	g.gateway.pages.mu.Lock()
	users := g.gateway.pages.current.users
	g.gateway.pages.mu.Unlock()
	if users != 0 {
		t.Errorf("%d requests still hold the connection", users)
	}
}
