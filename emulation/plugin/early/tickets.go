package early

import (
	"crypto/rand"
	"crypto/tls"

	"github.com/coredns/caddy"
)

// TicketKeys is one set of session-ticket keys for many TLS configurations. Configurations are cloned before they are
// used, and keys set later do not reach the clones; the callbacks do.
type TicketKeys struct {
	config tls.Config
}

type ticketsKey struct{}

// TicketKeysOf returns the keys that all server blocks of c's instance share.
func TicketKeysOf(c *caddy.Controller) *TicketKeys {
	if keys, ok := c.Get(ticketsKey{}).(*TicketKeys); ok {
		return keys
	}
	keys := NewTicketKeys()
	c.Set(ticketsKey{}, keys)
	return keys
}

// NewTicketKeys returns fresh keys.
func NewTicketKeys() *TicketKeys {
	keys := new(TicketKeys)
	keys.Rotate()
	return keys
}

// Rotate replaces the keys: tickets issued before are refused from now on.
func (k *TicketKeys) Rotate() {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	k.config.SetSessionTicketKeys([][32]byte{key})
}

// Share makes config, and every clone of it, issue and accept tickets under these keys.
func (k *TicketKeys) Share(config *tls.Config) {
	config.WrapSession = k.config.EncryptTicket
	config.UnwrapSession = k.config.DecryptTicket
}
