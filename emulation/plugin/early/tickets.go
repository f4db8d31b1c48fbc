package early

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/quic-go/quic-go"
)

const (
	// keyAge is how long a key issues tickets. Tickets are accepted for at most 2 x keyAge after the key was created (RFC
	// 8446, section 4.6.1).
	keyAge = 6 * time.Hour
	// maxUsed is the number of used tickets that are stored per key, 16 bytes each plus the overhead of the map.
	maxUsed = 1 << 18
)

// TicketKeys is one set of session-ticket keys for many TLS configurations. It works with callbacks in the configurations:
// listeners clone their configuration, and clones do not see keys that are set later.
//
// It stores the tickets that were used with early data while their keys are valid, so that early data of each ticket is
// accepted once (RFC 8446, section 8.1).
type TicketKeys struct {
	config tls.Config
	now    func() time.Time
	reset  quic.StatelessResetKey

	mu            sync.Mutex
	keys          [][32]byte // the newest first
	renewed       time.Time
	used, usedOld map[[16]byte]struct{} // used tickets since the newest key, and since the key before
}

type ticketsKey struct{}

// TicketKeysOf returns the keys that all server blocks of c's instance share.
func TicketKeysOf(c *caddy.Controller) *TicketKeys {
	if keys, ok := c.Get(ticketsKey{}).(*TicketKeys); ok {
		return keys
	}
	reload.Lock()
	keys := reload.tickets // of the old instance in a reload: its tickets stay valid
	reload.Unlock()
	if keys == nil {
		keys = NewTicketKeys()
	}
	c.Set(ticketsKey{}, keys)
	return keys
}

// NewTicketKeys returns new random keys.
func NewTicketKeys() *TicketKeys {
	keys := &TicketKeys{now: time.Now}
	_, _ = rand.Read(keys.reset[:]) // never fails
	keys.Rotate()
	return keys
}

// Rotate replaces all keys. Tickets issued before are refused.
func (k *TicketKeys) Rotate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = nil
	k.renew()
	k.usedOld = nil
}

// renew adds a new key and keeps the newest old one. The caller holds the mutex.
func (k *TicketKeys) renew() {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	k.keys = append([][32]byte{key}, k.keys[:min(1, len(k.keys))]...)
	k.config.SetSessionTicketKeys(k.keys)
	k.renewed = k.now()
	k.used, k.usedOld = map[[16]byte]struct{}{}, k.used
}

// Share makes config and its clones issue and accept tickets with these keys.
func (k *TicketKeys) Share(config *tls.Config) {
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		k.mu.Lock()
		if age := k.now().Sub(k.renewed); age >= 2*keyAge {
			k.keys = nil // no ticket was issued for long: the newest key is too old as well
			k.renew()
		} else if age >= keyAge {
			k.renew()
		}
		k.mu.Unlock()
		return k.config.EncryptTicket(state, session)
	}
	config.UnwrapSession = k.config.DecryptTicket
}

// Once makes config, after Share, accept early data once from each ticket. A ticket that is used again still resumes its
// session.
func (k *TicketKeys) Once(config *tls.Config) {
	config.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		session, err := k.config.DecryptTicket(ticket, state)
		if session != nil && session.EarlyData && !k.markUsed(ticket) {
			session.EarlyData = false
		}
		return session, err
	}
}

// markUsed records that a ticket was used. It returns false if the ticket was used before, or if maxUsed tickets are stored.
func (k *TicketKeys) markUsed(ticket []byte) bool {
	sum := sha256.Sum256(ticket)
	hash := [16]byte(sum[:16])
	k.mu.Lock()
	defer k.mu.Unlock()
	_, now := k.used[hash]
	_, before := k.usedOld[hash]
	if now || before || len(k.used) >= maxUsed {
		return false
	}
	k.used[hash] = struct{}{}
	return true
}
