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

// resetPatience is how long a reset waits for queries on their way and for a first ticket.
const resetPatience = time.Second

// cost is what an answer took.
type cost struct {
	connection    uint64 // number of the connection; 0 without one
	newConnection bool   // this query set it up
	handshake     time.Duration
	query         time.Duration
	localPort     uint16
	answerBytes   int
	retries       int
	tcpFallback   bool
	silence       time.Duration // of an idle connection, before the query was also sent over a new one
	connState
	early bool // the query left before the handshake was complete
}

// exchanger asks the upstream.
type exchanger interface {
	// exchange asks the query, which has ID 0, until it is answered or the context ends.
	exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error)
	// reset closes the connection, if there is one, so that the next query sets up another. Tickets and tokens are
	// kept unless they are to be forgotten.
	reset(forget bool) (closed int)
	stats() stats
	close()
}

// stats counts connections.
type stats struct {
	Connections uint64 `json:"connections"`
	Open        int    `json:"open"`
	Ticket      bool   `json:"ticket"`
}

// conn is a connection to the upstream that is up, or can carry early data.
type conn interface {
	// ask sends the query and waits for its answer, whose ID is 0; *broken where the connection failed.
	ask(ctx context.Context, query []byte) ([]byte, error)
	// usable is false once the connection is known to be closed.
	usable() bool
	// early is true as long as all that is sent is early data.
	early() bool
	state() connState
	path() pathState
	localPort() uint16
	close()
}

// connState is how the handshake went; nil where it is not over, or the transport has no such thing.
type connState struct {
	resumed           *bool
	earlyDataAccepted *bool
}

// dialer sets up a connection; what connections left is nil where nothing is resumed.
type dialer func(ctx context.Context, kept *sessionCache) (conn, error)

// session is the one connection to the upstream. It is set up by the first query that finds none; queries that come
// meanwhile wait for it. There is never a second one being set up.
type session struct {
	dial        dialer
	timeout     time.Duration
	probeIdleAfter time.Duration // time without an answer after which the path is probed; 0: never
	hedgeAfter  time.Duration // a query that waits as long on an open connection is asked over another too; 0: never

	mu      sync.Mutex
	kept    *sessionCache // nil where nothing is resumed
	current *connection
	opened  *atomic.Uint64
}

// connection is one to the upstream, from the moment that a query needs it.
type connection struct {
	number uint64
	cancel context.CancelFunc
	done   chan struct{} // closed when conn or err is set
	conn   conn
	err    error

	// Under the session's mutex.
	users    int
	detached bool
	unused   chan struct{} // closed when detached and without users
	answers  uint64        // that have come
	answered time.Time     // the last of them
	silent   time.Time     // end of a query that got none, and after which none came

	cut atomic.Bool // closed on command, under its users
}

func newSession(dial dialer, s settings) *session {
	made := &session{dial: dial, timeout: s.timeout, probeIdleAfter: s.probeIdleAfter, opened: new(atomic.Uint64)}
	if s.resumption != resumeNothing {
		made.kept = newSessionCache()
	}
	return made
}

// ask asks the query, a second time where its connection breaks.
func (s *session) ask(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	var spent cost
	for joined := false; ; {
		began := time.Now()
		a, started, unfinished, heard := s.join()
		spent.connection, spent.newConnection = a.number, started
		wire, err := a.ask(ctx, query, began, unfinished, &spent)
		s.leave(a)
		if spent.retries == 0 { // else the connection had only what was left of the query's time
			s.recordOutcome(a, err, began, heard)
		}
		if err == nil {
			spent.answerBytes = len(wire)
			answer, err := checkAnswer(wire, 0, question)
			return answer, spent, err
		}
		if a.cut.Load() {
			return nil, spent, errReset
		}
		_, failed := errors.AsType[*broken](err)
		switch {
		case ctx.Err() != nil:
			return nil, spent, err
		case failed && spent.retries == 0:
			s.drop(a) // queries are idempotent, so one more try is safe
			spent.retries++
		case isStreamReset(err) && spent.retries == 0:
			spent.retries++ // on the same connection, whose other queries are not concerned
		case !started && !joined && a.failed():
			joined = true // the connection of another query, that may have waited for it far longer
		default:
			return nil, spent, err
		}
	}
}

// ask waits for the connection to be up and asks, each timed. A query that found the connection unfinished when it
// began has waited for it, also where it is up by now.
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

// join returns the connection, or the beginning of one, which the first who finds none starts; whether it is not up yet,
// and how many answers have come on it.
func (s *session) join() (a *connection, started, unfinished bool, answers uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.dead() {
		s.retire(s.detach())
	}
	if started = s.current == nil; started {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		s.current = &connection{number: s.opened.Add(1), cancel: cancel, done: make(chan struct{}), unused: make(chan struct{})}
		go s.current.connect(ctx, s.dial, s.kept)
	}
	s.current.users++
	select {
	case <-s.current.done:
	default:
		unfinished = true
	}
	return s.current, started, started || unfinished, s.current.answers
}

// connect dials, and gives up a moment after the context's end where the dialer does not.
func (a *connection) connect(ctx context.Context, dial dialer, kept *sessionCache) {
	defer close(a.done)
	defer a.cancel()
	type dialled struct {
		conn conn
		err  error
	}
	results := make(chan dialled, 1)
	go func() {
		made, err := dial(ctx, kept)
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

// failed is true once the connection could not be set up.
func (a *connection) failed() bool {
	select {
	case <-a.done:
		return a.err != nil
	default:
		return false
	}
}

// up is true once the connection could be set up.
func (a *connection) up() bool {
	select {
	case <-a.done:
		return a.err == nil
	default:
		return false
	}
}

func (a *connection) dead() bool {
	select {
	case <-a.done:
		return a.err != nil || !a.conn.usable()
	default:
		return false
	}
}

func (s *session) leave(a *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.users--
	if a.detached && a.users == 0 {
		close(a.unused)
	}
}

// recordOutcome gives a connection up that is up and silent: where no answer has ever come after one query, else after two in
// a row, since a single one may be a question that the upstream cannot answer.
func (s *session) recordOutcome(a *connection, err error, asked time.Time, heard uint64) {
	_, bad := err.(badAnswer)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || bad:
		a.answers++
		a.answered, a.silent = time.Now(), time.Time{}
	case !errors.Is(err, context.DeadlineExceeded) || !a.up() || a.answers != heard || s.current != a:
	case a.answers == 0 || !a.silent.IsZero() && asked.After(a.silent):
		s.retire(s.detach())
	case a.silent.IsZero():
		a.silent = time.Now()
	}
}

// drop makes the next query set up a new connection; those on this one may end.
func (s *session) drop(a *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == a {
		s.retire(s.detach())
	}
}

// detach takes the connection out, for the caller to close. The mutex is held.
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
	a, kept := s.detach(), s.kept
	if forget && kept != nil {
		s.kept = newSessionCache() // what the closing connection still brings goes to the old one
	}
	s.mu.Unlock()
	if a == nil {
		return 0
	}
	patience, cancel := context.WithTimeout(context.Background(), resetPatience)
	defer cancel()
	select {
	case <-a.unused:
	case <-patience.Done():
		a.cut.Store(true)
	}
	if !forget && kept != nil && !a.dead() {
		kept.awaitTicket(patience)
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
	c := stats{Connections: s.opened.Load(), Ticket: s.kept != nil && s.kept.hasTicket()}
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
		a.cut.Store(true)
		a.close()
	}
}

// newExchanger makes the way to the upstream that the settings name.
func newExchanger(s settings, address netip.AddrPort) (exchanger, error) {
	over := func(dial dialer) *session { return newSession(dial, s) }
	streams := streamDialer{address: address, timeout: s.timeout, idle: s.idleTimeout}
	if !s.upstream.protocol.encrypted() {
		if s.upstream.protocol == doTCP {
			return s.over(streams.dial), nil
		}
		return &datagrams{address: address, retransmit: s.udpRetransmit, tcp: over(streams.dial)}, nil
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
		return s.over(streams.dial), nil
	case doH:
		return over(httpDialer{streamDialer: streams, url: s.queryURL()}.dial), nil
	}
	dial := packets.dialDoQ
	if s.upstream.protocol == doH3 {
		dial = packets.dialH3(s.queryURL())
	}
	hedged := over(dial)
	hedged.hedgeAfter = s.timeout * 5 / 8 // later than quicConn.guard, so that what is left is enough for a handshake
	return hedged, nil
}
