package coalesce

import (
	"crypto/tls"
	"errors"
	"strings"
	"time"

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

// options is what a server block says about the plugin.
type options struct {
	pages       string
	https       string
	h3          string
	doq         string
	control     string
	events      string
	retry       bool
	maxTLS      uint16 // newest version over TCP
	earlyData   earlyDataMode
	idleTimeout time.Duration
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
		common.tickets.share(config.TLSConfig)
	} else if opts.encrypted() {
		return plugin.Error(pluginName, c.Err("https, h3 and doq need a certificate: put the tls plugin into the same server block"))
	}
	if !bare {
		if common.server != nil {
			return plugin.Error(pluginName, c.Err("only one server block may have properties, use the bare form in the others"))
		}
		common.server = newServer(opts, config, common)
		c.OnStartup(common.server.start)
		c.OnShutdown(common.server.stop)
	}
	if config.TLSConfig != nil {
		// After newServer took its copy: QUIC has TLS 1.3 and nothing older.
		config.TLSConfig.MaxVersion = opts.maxTLS
	}
	if config.TLSConfig != nil && hasKey(c.ServerBlockKeys, transport.TLS) {
		// After newServer took its copy: the plugin's own listeners report their connections themselves.
		reportTLSConnections(config.TLSConfig, listenerDoT, common.events)
	}
	return nil
}

// parse reads the server block; bare is true for the form without a block.
func parse(c *caddy.Controller) (opts options, bare bool, err error) {
	opts = options{idleTimeout: 30 * time.Second, maxTLS: tls.VersionTLS13}
	bare = true
	seen := map[string]bool{}
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return opts, bare, plugin.ErrOnce
		}
		if len(c.RemainingArgs()) > 0 {
			return opts, bare, c.ArgErr()
		}
		for c.NextBlock() {
			bare = false
			property := c.Val()
			if seen[property] {
				return opts, bare, c.Errf("property '%s' is given twice", property)
			}
			seen[property] = true
			args := c.RemainingArgs()
			if len(args) != 1 {
				return opts, bare, c.ArgErr()
			}
			if err := opts.set(property, args[0]); err != nil {
				return opts, bare, c.Err(err.Error())
			}
		}
	}
	return opts, bare, nil
}

// set gives one property its value.
func (o *options) set(property, value string) (err error) {
	switch property {
	case "pages":
		o.pages = value
	case "https":
		o.https = value
	case "h3":
		o.h3 = value
	case "doq":
		o.doq = value
	case "control":
		o.control = value
	case "events":
		o.events = value
	case "retry":
		o.retry, err = onOff(property, value)
	case "max_tls":
		o.maxTLS, err = parseTLSVersion(value)
	case "early_data":
		o.earlyData, err = parseEarlyData(value)
	case "idle_timeout":
		o.idleTimeout, err = time.ParseDuration(value)
		if err == nil && o.idleTimeout <= 0 {
			err = errors.New("idle_timeout must be positive")
		}
	default:
		err = errors.New("unknown property '" + property + "'")
	}
	return err
}

func onOff(property, value string) (bool, error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, errors.New(property + " is either on or off, not '" + value + "'")
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
