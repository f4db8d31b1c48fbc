package stub

import (
	"context"
	"crypto/tls"
	"sync"

	"github.com/quic-go/quic-go"
)

// sessionCache keeps what connections left for the next one: the newest session ticket and the newest address-validation
// token. Either serves until a newer one came, so that a connection that was lost before it brought any costs nothing.
type sessionCache struct {
	arrived chan struct{} // closed with the first ticket

	mu     sync.Mutex
	ticket *tls.ClientSessionState
	token  *quic.ClientToken
}

func newSessionCache() *sessionCache { return &sessionCache{arrived: make(chan struct{})} }

// awaitTicket blocks until there is a ticket, or until the context ends.
func (k *sessionCache) awaitTicket(ctx context.Context) {
	select {
	case <-k.arrived:
	case <-ctx.Done():
	}
}

func (k *sessionCache) hasTicket() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ticket != nil
}

// tickets is the sessionCache as crypto/tls uses it; there is one upstream, so the key says nothing.
type tickets struct{ *sessionCache }

// Get implements the tls.ClientSessionCache interface.
func (t tickets) Get(string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ticket, t.ticket != nil
}

// Put implements the tls.ClientSessionCache interface; nil is an expired ticket.
func (t tickets) Put(_ string, ticket *tls.ClientSessionState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ticket = ticket
	select {
	case <-t.arrived:
	default:
		if ticket != nil {
			close(t.arrived)
		}
	}
}

// tokens is the sessionCache as quic-go uses it.
type tokens struct{ *sessionCache }

// Pop implements the quic.TokenStore interface.
func (t tokens) Pop(string) *quic.ClientToken {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token
}

// Put implements the quic.TokenStore interface.
func (t tokens) Put(_ string, token *quic.ClientToken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = token
}
