package early

import (
	"errors"
	"fmt"
	"net"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
)

const pluginName = "early"

func init() { plugin.Register(pluginName, setup) }

// server is the DoQ listener of a server block.
type server struct {
	DoQServer
	address  string
	listener *Listener
}

type serversKey struct{}

func setup(c *caddy.Controller) error {
	address, options, err := parseBlock(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	config := dnsserver.GetConfig(c)
	config.AddPlugin(func(next plugin.Handler) plugin.Handler { return Early{Next: next} })
	if config.TLSConfig != nil {
		TicketKeysOf(c).Share(config.TLSConfig)
	}
	if address == "" {
		return nil
	}
	if config.TLSConfig == nil {
		return plugin.Error(pluginName, c.Err("doq needs a certificate: put the tls plugin into the same server block"))
	}
	s := &server{address: address}
	s.Policy, s.Conns = NewPolicy(options, TicketKeysOf(c)), new(Conns)
	if err := Claim(c, DoQ, address); err != nil {
		return plugin.Error(pluginName, err)
	}
	configs := BlockConfigs(c)
	c.OnStartup(func() error {
		if err := s.start(configs); err != nil {
			return plugin.Error(pluginName, fmt.Errorf("doq: %w", err))
		}
		return nil
	})
	c.OnShutdown(s.stop)
	OnReload(c, s)
	servers, _ := c.Get(serversKey{}).([]*server)
	c.Set(serversKey{}, append(servers, s))
	return nil
}

type claimsKey struct{}

// Claim returns an error if another server block has the same address for a plugin's listener.
func Claim(c *caddy.Controller, listener, address string) error {
	claims, ok := c.Get(claimsKey{}).(map[string]bool)
	if !ok {
		claims = map[string]bool{}
		c.Set(claimsKey{}, claims)
	}
	network := "udp"
	if listener == "https" {
		network = "tcp"
	}
	_, port, _ := net.SplitHostPort(address)
	if key := network + " " + address; port != "0" && claims[key] {
		return c.Errf("%s %s is opened by another server block; name all its zones before one block", listener, address)
	} else {
		claims[key] = true
	}
	return nil
}

func (s *server) start(configs []*dnsserver.Config) (err error) {
	if s.Chain, err = NewChain("quic://"+s.address, configs); err != nil {
		return err
	}
	if s.listener, err = s.Listen(s.address, configs[0].TLSConfig); err != nil {
		return err
	}
	s.Serve(s.listener)
	return nil
}

// Offered implements the Reloadable interface.
func (s *server) Offered() (packets []*Listener, streams []*net.TCPListener) {
	return []*Listener{s.listener}, nil
}

// Resume implements the Reloadable interface.
func (s *server) Resume() error { return nil }

// stop closes the connections and the socket.
func (s *server) stop() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// parseBlock parses the properties of a server block. address is empty without a listener.
func parseBlock(c *caddy.Controller) (address string, options Options, err error) {
	options = DefaultOptions
	err = ParseProperties(c, func(property, value string) error {
		if property == DoQ {
			address = value
			return CheckDoQAddress(value)
		}
		known, err := options.Set(property, value)
		if !known {
			return errors.New("unknown property '" + property + "'")
		}
		return err
	})
	return address, options, err
}

// CheckDoQAddress returns an error for port 53, which must not be used for DNS over QUIC (RFC 9250, section 4.1.1).
func CheckDoQAddress(address string) error {
	if _, port, err := net.SplitHostPort(address); err == nil && (port == "53" || port == "domain") {
		return errors.New("doq " + address + ": port 53 must not be used for DNS over QUIC (RFC 9250, section 4.1.1)")
	}
	return nil
}

// ParseProperties parses the directive of a plugin: its name, optionally with a block of properties with one value each. It
// calls set for each property.
func ParseProperties(c *caddy.Controller, set func(property, value string) error) error {
	seen := map[string]bool{}
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return plugin.ErrOnce
		}
		if len(c.RemainingArgs()) > 0 {
			return c.ArgErr()
		}
		for c.NextBlock() {
			property := c.Val()
			if seen[property] {
				return c.Errf("property '%s' is given twice", property)
			}
			seen[property] = true
			args := c.RemainingArgs()
			if len(args) != 1 {
				return c.ArgErr()
			}
			if err := set(property, args[0]); err != nil {
				return c.Err(err.Error())
			}
		}
	}
	return nil
}
