package coalesce

import (
	"crypto/rand"
	"crypto/tls"

	"github.com/coredns/caddy"
)

// shared is what all server blocks of one CoreDNS instance have in common.
type shared struct {
	tickets *ticketKeys
	events  *eventLog
	server  *server // of the one block with properties, else nil
}

type sharedKey struct{}

// sharedBy returns what the server blocks of c's instance share.
func sharedBy(c *caddy.Controller) *shared {
	if common, ok := c.Get(sharedKey{}).(*shared); ok {
		return common
	}
	common := &shared{tickets: newTicketKeys(), events: newEventLog()}
	c.Set(sharedKey{}, common)
	return common
}

// startupComplete lets the control socket answer once every listener of the instance, CoreDNS's own included, is bound.
func startupComplete(event caddy.EventName, info any) error {
	instance, ok := info.(*caddy.Instance)
	if event != caddy.InstanceStartupEvent || !ok {
		return nil
	}
	instance.StorageMu.RLock()
	common, ok := instance.Storage[sharedKey{}].(*shared)
	instance.StorageMu.RUnlock()
	if ok && common.server != nil {
		common.server.ready(instance.Servers())
	}
	return nil
}

// ticketKeys is one set of session-ticket keys for many TLS configurations. Configurations are cloned before they are
// used, and keys set later do not reach the clones; the callbacks do.
type ticketKeys struct {
	config tls.Config
}

func newTicketKeys() *ticketKeys {
	keys := new(ticketKeys)
	keys.rotate()
	return keys
}

// rotate replaces the keys: tickets issued before are refused from now on.
func (k *ticketKeys) rotate() {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	k.config.SetSessionTicketKeys([][32]byte{key})
}

// share makes config, and every clone of it, issue and accept tickets under the shared keys.
func (k *ticketKeys) share(config *tls.Config) {
	config.WrapSession = k.config.EncryptTicket
	config.UnwrapSession = k.config.DecryptTicket
}
