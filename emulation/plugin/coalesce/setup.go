package coalesce

import (
	"crypto/tls"
	"errors"
	"strings"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/transport"
)

const pluginName = "coalesce"

func init() {
	plugin.Register(pluginName, setup)
	caddy.RegisterEventHook(pluginName, startupComplete)
}

// options are the properties of the plugin in a server block.
type options struct {
	early.Options
	pages   string
	https   string
	h3      string
	doq     string
	doqALPN string // application protocol of DoQ; empty for doq (RFC 9250)
	control string
	events  string
	maxTLS  uint16 // newest TLS version over TCP
}

func (o options) encrypted() bool { return o.https != "" || o.h3 != "" || o.doq != "" }

func setup(c *caddy.Controller) error {
	opts, bare, err := parse(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	config := dnsserver.GetConfig(c)
	common := sharedBy(c)
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		return Coalesce{Next: next, shared: common}
	})
	if config.TLSConfig != nil {
		common.tickets.Share(config.TLSConfig)
		common.useOverrides(config.TLSConfig)
		if err := logKeys(config.TLSConfig); err != nil {
			return plugin.Error(pluginName, err)
		}
	} else if opts.encrypted() {
		return plugin.Error(pluginName, c.Err("https, h3 and doq need a certificate: put the tls plugin into the same server block"))
	}
	if !bare {
		for listener, address := range map[string]string{"https": opts.https, "h3": opts.h3, "doq": opts.doq} {
			if address == "" {
				continue
			}
			if err := early.Claim(c, listener, address); err != nil {
				return plugin.Error(pluginName, err)
			}
		}
		if common.server != nil {
			return plugin.Error(pluginName, c.Err("only one server block may have properties, use the bare form in the others"))
		}
		common.server = newServer(opts, early.BlockConfigs(c), config.TLSConfig, common)
		c.OnStartup(common.server.start)
		c.OnShutdown(common.server.stop)
		early.OnReload(c, common.server)
	}
	if config.TLSConfig != nil {
		// After newServer cloned the configuration: QUIC needs TLS 1.3.
		config.TLSConfig.MaxVersion = opts.maxTLS
	}
	if config.TLSConfig != nil && hasKey(c.ServerBlockKeys, transport.TLS) {
		// After newServer cloned the configuration: the plugin's own listeners report their connections themselves.
		reportTLSConnections(config.TLSConfig, listenerDoT, common.events)
	}
	return nil
}

// parse parses the directive. bare is true if it has no properties.
func parse(c *caddy.Controller) (opts options, bare bool, err error) {
	opts, bare = options{Options: early.DefaultOptions, maxTLS: tls.VersionTLS13}, true
	err = early.ParseProperties(c, func(property, value string) error {
		bare = false
		return opts.set(property, value)
	})
	return opts, bare, err
}

// set sets a property.
func (o *options) set(property, value string) (err error) {
	switch property {
	case "pages":
		o.pages = value
	case "https":
		o.https = value
	case "h3":
		o.h3 = value
	case "doq":
		o.doq, err = value, early.CheckDoQAddress(value)
	case "doq_alpn":
		o.doqALPN = value
	case "control":
		o.control = value
	case "events":
		o.events = value
	case "max_tls":
		o.maxTLS, err = parseTLSVersion(value)
	default:
		known, err := o.Set(property, value)
		if !known {
			return errors.New("unknown property '" + property + "'")
		}
		return err
	}
	return err
}

func parseTLSVersion(value string) (uint16, error) {
	switch value {
	case "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	}
	return 0, errors.New("max_tls is either 1.2 or 1.3, not '" + value + "'")
}

func hasKey(keys []string, scheme string) bool {
	for _, key := range keys {
		if strings.HasPrefix(key, scheme+"://") {
			return true
		}
	}
	return false
}
