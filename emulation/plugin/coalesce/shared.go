package coalesce

import (
	"crypto/tls"
	"sync/atomic"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
)

// shared is what all server blocks of one CoreDNS instance have in common.
type shared struct {
	tickets *early.TicketKeys
	events  *eventLog
	server  *server // of the one block with properties, else nil
	// certificate is shown instead of that of each block, where there is one.
	certificate atomic.Pointer[tls.Certificate]
	// ech opens encrypted hellos (RFC 9849), where there is one.
	ech     atomic.Pointer[tls.EncryptedClientHelloKey]
	answers givenAnswers
	// altSvc is the header Alt-Svc (RFC 7838) of responses over TCP, where there is one.
	altSvc atomic.Pointer[string]
	// streams are the open connections of the HTTPS listener.
	streams streamConns
}

type sharedKey struct{}

// sharedBy returns what the server blocks of c's instance share.
func sharedBy(c *caddy.Controller) *shared {
	if common, ok := c.Get(sharedKey{}).(*shared); ok {
		return common
	}
	common := &shared{tickets: early.TicketKeysOf(c), events: newEventLog()}
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

// obey makes config, and every clone of it, use the certificate and the ECH key of the control socket where it was given
// them.
func (s *shared) obey(config *tls.Config) {
	own := config.Certificates
	// Else crypto/tls shows the block's own to clients that name no server.
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
