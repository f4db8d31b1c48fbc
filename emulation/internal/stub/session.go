package stub

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// resetTimeout is how long a reset waits for open queries and for a first ticket.
const resetTimeout = time.Second

// cost describes how a query was answered: connection, times and sizes.
type cost struct {
	connection    uint64 // number of the connection, from 1; 0 without one
	newConnection bool   // this query set it up
	handshake     time.Duration
	query         time.Duration
	localPort     uint16
	answerBytes   int
	retries       int
	tcpFallback   bool
	silence       time.Duration // wait on an idle connection before the query was also sent over a new one
	connState
	early bool // the query was sent before the handshake was complete
}

// exchanger sends queries to the upstream.
type exchanger interface {
	// exchange sends the query, which has ID 0, and waits for the answer or the end of the context.
	exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error)
	// reset closes the open connections and returns their number. The next query sets up a new one. With forget it also
	// deletes tickets and tokens.
	reset(forget bool) (closed int)
	stats() stats
	close()
}

// stats is the part of the answer to the command stats that describes connections.
type stats struct {
	Connections uint64 `json:"connections"`
	Open        int    `json:"open"`
	Ticket      bool   `json:"ticket"`
}

// conn is a connection to the upstream whose handshake is complete or which can carry early data.
type conn interface {
	// ask sends the query and returns its answer with ID 0. The error is *broken if the connection failed.
	ask(ctx context.Context, query []byte) ([]byte, error)
	// usable is false once the connection is known to be closed.
	usable() bool
	// early is true until the handshake is complete: all data sent so far is early data.
	early() bool
	state() connState
	path() pathState
	localPort() uint16
	close()
}

// connState is the result of the handshake. A field is nil if the handshake is not complete or the transport does not have
// the property.
type connState struct {
	resumed           *bool
	earlyDataAccepted *bool
}

// dialer sets up a connection. cache is nil if sessions are not resumed.
type dialer func(ctx context.Context, cache *sessionCache) (conn, error)

// session is an exchanger with one connection to the upstream. A query without an open connection sets one up. Queries that
// arrive meanwhile wait for that connection and set up no second one.
type session struct {
	dial           dialer
	timeout        time.Duration
	probeIdleAfter time.Duration // time without an answer after which the path is probed; 0: never
	hedgeAfter     time.Duration // time after which a query on an open connection is sent over another too; 0: never

	mu      sync.Mutex
	cache   *sessionCache // nil if sessions are not resumed
	current *connection
	opened  *atomic.Uint64
}

// connection is a connection to the upstream, including the time of its setup.
type connection struct {
	number uint64
	cancel context.CancelFunc
	done   chan struct{} // closed when conn or err is set
	conn   conn
	err    error

	// The session's mutex protects these.
	users    int
	detached bool
	unused   chan struct{} // closed when the connection is detached and has no users
	answers  uint64        // number of answers
	answered time.Time     // time of the last answer
	silent   time.Time     // end of an unanswered query; zero if an answer arrived later

	aborted atomic.Bool // closed by reset or close while it had users
}

func newSession(dial dialer, s settings) *session {
	made := &session{dial: dial, timeout: s.timeout, probeIdleAfter: s.probeIdleAfter, opened: new(atomic.Uint64)}
	if s.resumption != resumeNothing {
		made.cache = newSessionCache()
	}
	return made
}

// ask sends the query over the session's connection. It repeats the query once if the connection breaks.
func (s *session) ask(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	var spent cost
	for joined := false; ; {
		began := time.Now()
		a, started, unfinished, answersBefore := s.join()
		spent.connection, spent.newConnection = a.number, started
		wire, err := a.ask(ctx, query, began, unfinished, &spent)
		s.leave(a)
		if spent.retries == 0 { // a repeated query had less time than the timeout
			s.recordOutcome(a, err, began, answersBefore)
		}
		if err == nil {
			spent.answerBytes = len(wire)
			answer, err := checkAnswer(wire, 0, question)
			return answer, spent, err
		}
		if a.aborted.Load() {
			return nil, spent, errReset
		}
		_, failed := errors.AsType[*broken](err)
		switch {
		case ctx.Err() != nil:
			return nil, spent, err
		case failed && spent.retries == 0:
			s.drop(a) // a repetition is safe, since queries are idempotent
			spent.retries++
		case isStreamReset(err) && spent.retries == 0:
			spent.retries++ // on the same connection: its other queries are unaffected
		case !started && !joined && a.failed():
			joined = true // another query started that setup, which failed before this query's time is up: try a new one
		default:
			return nil, spent, err
		}
	}
}

// ask waits until the connection is set up, sends the query, and measures the time of both. unfinished means that the
// connection was not set up when the query began: the query then has a handshake time even if the setup ended meanwhile.
func (a *connection) ask(ctx context.Context, query []byte, began time.Time, unfinished bool, spent *cost) ([]byte, error) {
	spent.handshake = 0
	if unfinished {
		select {
		case <-a.done:
			spent.handshake = time.Since(began)
		case <-ctx.Done():
			spent.handshake = time.Since(began)
			return nil, ctx.Err()
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	asked := time.Now()
	if spent.early = a.conn.early(); spent.early {
		spent.handshake, asked = 0, began
	}
	spent.localPort = a.conn.localPort()
	wire, err := a.conn.ask(ctx, query)
	spent.query = time.Since(asked)
	spent.connState = a.conn.state()
	if !spent.early {
		spent.earlyDataAccepted = nil
	}
	return wire, err
}

// join adds a user to the current connection and starts one if there is none. It returns whether it started the connection,
// whether the setup is unfinished, and the number of answers on the connection so far.
func (s *session) join() (a *connection, started, unfinished bool, answers uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.dead() {
		s.retire(s.detach())
	}
	if started = s.current == nil; started {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		s.current = &connection{number: s.opened.Add(1), cancel: cancel, done: make(chan struct{}), unused: make(chan struct{})}
		go s.current.connect(ctx, s.dial, s.cache)
	}
	s.current.users++
	select {
	case <-s.current.done:
	default:
		unfinished = true
	}
	return s.current, started, started || unfinished, s.current.answers
}

// connect calls the dialer. If the dialer does not return with the end of the context, connect fails and later closes the
// late connection.
func (a *connection) connect(ctx context.Context, dial dialer, cache *sessionCache) {
	defer close(a.done)
	defer a.cancel()
	type dialled struct {
		conn conn
		err  error
	}
	results := make(chan dialled, 1)
	go func() {
		made, err := dial(ctx, cache)
		results <- dialled{made, err}
	}()
	got, ok := await(ctx, results)
	if !ok {
		a.err = context.DeadlineExceeded
		go func() {
			if late := <-results; late.conn != nil {
				late.conn.close()
			}
		}()
		return
	}
	a.conn, a.err = got.conn, got.err
}

// failed reports whether the setup has failed.
func (a *connection) failed() bool {
	select {
	case <-a.done:
		return a.err != nil
	default:
		return false
	}
}

// up reports whether the setup has succeeded.
func (a *connection) up() bool {
	select {
	case <-a.done:
		return a.err == nil
	default:
		return false
	}
}

// dead reports whether the setup has failed or the connection is known to be closed.
func (a *connection) dead() bool {
	select {
	case <-a.done:
		return a.err != nil || !a.conn.usable()
	default:
		return false
	}
}

// leave removes a user of the connection.
func (s *session) leave(a *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.users--
	if a.detached && a.users == 0 {
		close(a.unused)
	}
}

// recordOutcome records an answer or a timeout. It replaces a connection without answers after one timeout, and another
// connection after two timeouts in a row: a single one may be a question that the upstream cannot answer.
func (s *session) recordOutcome(a *connection, err error, asked time.Time, answersBefore uint64) {
	_, bad := err.(badAnswer)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || bad:
		a.answers++
		a.answered, a.silent = time.Now(), time.Time{}
	case !errors.Is(err, context.DeadlineExceeded) || !a.up() || a.answers != answersBefore || s.current != a:
	case a.answers == 0 || !a.silent.IsZero() && asked.After(a.silent):
		s.retire(s.detach())
	case a.silent.IsZero():
		a.silent = time.Now()
	}
}

// drop makes the next query set up a new connection. Open queries on this connection continue.
func (s *session) drop(a *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == a {
		s.retire(s.detach())
	}
}

// detach removes the connection from the session and returns it. The caller must close it, and holds the mutex.
func (s *session) detach() *connection {
	a := s.current
	s.current = nil
	if a != nil {
		a.detached = true
		if a.users == 0 {
			close(a.unused)
		}
	}
	return a
}

// retire closes a detached connection once its last query has ended.
func (s *session) retire(a *connection) {
	go func() {
		<-a.unused
		a.close()
	}()
}

func (a *connection) close() {
	a.cancel()
	<-a.done
	if a.conn != nil {
		a.conn.close()
	}
}

func (s *session) reset(forget bool) (closed int) {
	s.mu.Lock()
	a, cache := s.detach(), s.cache
	if forget && cache != nil {
		s.cache = newSessionCache() // the closing connection may still write to the old one
	}
	s.mu.Unlock()
	if a == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), resetTimeout)
	defer cancel()
	select {
	case <-a.unused:
	case <-ctx.Done():
		a.aborted.Store(true)
	}
	if !forget && cache != nil && !a.dead() {
		cache.awaitTicket(ctx)
	}
	a.close()
	if a.conn == nil {
		return 0
	}
	return 1
}

func (s *session) stats() stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := stats{Connections: s.opened.Load(), Ticket: s.cache != nil && s.cache.hasTicket()}
	if s.current != nil {
		select {
		case <-s.current.done:
			if !s.current.dead() {
				c.Open = 1
			}
		default: // being set up
		}
	}
	return c
}

func (s *session) close() {
	s.mu.Lock()
	a := s.detach()
	s.mu.Unlock()
	if a != nil {
		a.aborted.Store(true)
		a.close()
	}
}

// newExchanger returns the exchanger for the upstream of the settings.
func newExchanger(s settings, address netip.AddrPort) (exchanger, error) {
	single := func(dial dialer) *session { return newSession(dial, s) }
	streams := streamDialer{address: address, timeout: s.timeout, idle: s.idleTimeout}
	if !s.upstream.protocol.encrypted() {
		if s.upstream.protocol == doTCP {
			return s.exchangerFor(streams.dial), nil
		}
		return &datagrams{address: address, retransmit: s.udpRetransmit, tcp: single(streams.dial)}, nil
	}
	config, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}
	streams.tls = config
	packets := quicDialer{
		address: address, timeout: s.timeout, idle: s.idleTimeout, tls: config,
		early: s.resumption == resumeEarly, pages: s.gateway.IsValid(),
	}
	switch s.upstream.protocol {
	case doT:
		return s.exchangerFor(streams.dial), nil
	case doH:
		return single(httpDialer{streamDialer: streams, url: s.queryURL()}.dial), nil
	}
	dial := packets.dialDoQ
	if s.upstream.protocol == doH3 {
		dial = packets.dialH3(s.queryURL())
	}
	hedged := single(dial)
	hedged.hedgeAfter = s.timeout * 5 / 8 // later than quicConn.closeWhenSilent; the remaining time is enough for a handshake
	return hedged, nil
}
