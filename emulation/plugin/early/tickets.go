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
	// keyAge is how long a key issues tickets; it accepts them twice as long (RFC 8446, section 4.6.1).
	keyAge = 6 * time.Hour
	// maxUsed is how many used tickets are kept in mind per key, 16 bytes each and the map's overhead.
	maxUsed = 1 << 18
)

// TicketKeys is one set of session-ticket keys for many TLS configurations. Configurations are cloned before they are
// used, and keys set later do not reach the clones; the callbacks do.
//
// It remembers which tickets have brought early data, for as long as their keys are accepted, so that early data is
// accepted from each once (RFC 8446, section 8.1).
type TicketKeys struct {
	config tls.Config
	now    func() time.Time
	reset  quic.StatelessResetKey

	mu            sync.Mutex
	keys          [][32]byte // the newest first
	renewed       time.Time
	used, usedOld map[[16]byte]struct{} // since the newest key, and since the one before
}

type ticketsKey struct{}

// TicketKeysOf returns the keys that all server blocks of c's instance share.
func TicketKeysOf(c *caddy.Controller) *TicketKeys {
	if keys, ok := c.Get(ticketsKey{}).(*TicketKeys); ok {
		return keys
	}
	reload.Lock()
	keys := reload.tickets // of the instance that this one succeeds: its tickets go on
	reload.Unlock()
	if keys == nil {
		keys = NewTicketKeys()
	}
	c.Set(ticketsKey{}, keys)
	return keys
}

// NewTicketKeys returns fresh keys.
func NewTicketKeys() *TicketKeys {
	keys := &TicketKeys{now: time.Now}
	_, _ = rand.Read(keys.reset[:]) // never fails
	keys.Rotate()
	return keys
}

// Rotate replaces the keys: tickets issued before are refused from now on.
func (k *TicketKeys) Rotate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = nil
	k.renew()
	k.usedOld = nil
}

// renew puts a new key before the newest one; the mutex is held.
func (k *TicketKeys) renew() {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	k.keys = append([][32]byte{key}, k.keys[:min(1, len(k.keys))]...)
	k.config.SetSessionTicketKeys(k.keys)
	k.renewed = k.now()
	k.used, k.usedOld = map[[16]byte]struct{}{}, k.used
}

// Share makes config, and every clone of it, issue and accept tickets under these keys.
func (k *TicketKeys) Share(config *tls.Config) {
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		k.mu.Lock()
		if age := k.now().Sub(k.renewed); age >= 2*keyAge {
			k.keys = nil // nobody asked for a ticket for long: those before are too old as well
			k.renew()
		} else if age >= keyAge {
			k.renew()
		}
		k.mu.Unlock()
		return k.config.EncryptTicket(state, session)
	}
	config.UnwrapSession = k.config.DecryptTicket
}

// Once makes config, which has a share in the keys, accept early data once from each ticket. Used again, a ticket still
// resumes its session.
func (k *TicketKeys) Once(config *tls.Config) {
	config.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		session, err := k.config.DecryptTicket(ticket, state)
		if session != nil && session.EarlyData && !k.use(ticket) {
			session.EarlyData = false
		}
		return session, err
	}
}

// use is true the first time a ticket is used; with too many in mind, never.
func (k *TicketKeys) use(ticket []byte) bool {
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
