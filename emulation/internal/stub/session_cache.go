package stub

import (
	"context"
	"crypto/tls"
	"sync"

	"github.com/quic-go/quic-go"
)

// sessionCache stores the newest session ticket and the newest address-validation token for the next connection. Both are
// used until a newer one arrives, also after a connection that delivered none.
type sessionCache struct {
	arrived chan struct{} // closed with the first ticket

	mu     sync.Mutex
	ticket *tls.ClientSessionState
	token  *quic.ClientToken
}

func newSessionCache() *sessionCache { return &sessionCache{arrived: make(chan struct{})} }

// awaitTicket waits for the first ticket or the end of the context.
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

// tickets implements tls.ClientSessionCache. It ignores the key, because there is one upstream.
type tickets struct{ *sessionCache }

// Get implements the tls.ClientSessionCache interface.
func (t tickets) Get(string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ticket, t.ticket != nil
}

// Put implements the tls.ClientSessionCache interface. crypto/tls passes nil to remove an expired ticket.
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

// tokens implements quic.TokenStore. Its tokens can be used more than once.
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
