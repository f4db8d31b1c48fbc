package coalesce

import (
	"crypto/tls"
	"sync/atomic"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
)

// shared is the state that all server blocks of a CoreDNS instance share.
type shared struct {
	tickets *early.TicketKeys
	events  *eventLog
	server  *server // of the server block with properties; nil without one
	// certificate replaces the certificates of all server blocks; nil for none.
	certificate atomic.Pointer[tls.Certificate]
	// ech decrypts encrypted hellos (RFC 9849); nil for none.
	ech     atomic.Pointer[tls.EncryptedClientHelloKey]
	answers givenAnswers
	// altSvc is the header Alt-Svc (RFC 7838) of responses over TCP; nil for none.
	altSvc atomic.Pointer[string]
	// streams are the open connections of the HTTPS listener.
	streams streamConns
}

type sharedKey struct{}

// sharedBy returns the shared state of c's instance.
func sharedBy(c *caddy.Controller) *shared {
	if common, ok := c.Get(sharedKey{}).(*shared); ok {
		return common
	}
	common := &shared{tickets: early.TicketKeysOf(c), events: newEventLog()}
	c.Set(sharedKey{}, common)
	return common
}

// startupComplete starts to answer the control socket when all listeners of the instance, including CoreDNS's own, are bound.
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

// useOverrides makes config and its clones use the certificate and the ECH key that the control socket has set, if any.
func (s *shared) useOverrides(config *tls.Config) {
	own := config.Certificates
	// Otherwise crypto/tls ignores GetCertificate for clients without SNI.
	config.Certificates = nil
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if given := s.certificate.Load(); given != nil {
			return given, nil
		}
		return &own[0], nil
	}
	config.GetEncryptedClientHelloKeys = func(*tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) {
		if given := s.ech.Load(); given != nil {
			return []tls.EncryptedClientHelloKey{*given}, nil
		}
		return nil, nil
	}
}
