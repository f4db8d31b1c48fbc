package box

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"crosslayer.example/emulation/internal/jsonl"
	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"
)

const pluginName = "box"

// Answers to a query that exceeds the rate.
const limit503, limitRefused, limitSilence, limitEscalate = "503", "refused", "silence", "escalate"

// Answers that ask a client to stop: HTTP status 403 or 451 (REFUSED without HTTP), or REFUSED with the Extended DNS Error
// Prohibited.
const stop403, stop451, stopProhibited = "403", "451", "prohibited"

func init() { plugin.Register(pluginName, setup) }

// options are the properties of the plugin in a server block.
type options struct {
	truthFile   string
	resolver    string
	site        string
	cached      bool     // answers of the next plugins are cached
	filter      []string // zones
	rate        float64  // queries per second; 0 without a limit
	limitAnswer string
	stopAnswer  string    // empty: clients are never asked to stop
	stopAfter   int64     // number of queries that are answered before stopAnswer
	own         *ownTimes // nil: no processing time is added
}

func setup(c *caddy.Controller) error {
	opts := options{limitAnswer: limitRefused}
	if err := early.ParseProperties(c, opts.set); err != nil {
		return plugin.Error(pluginName, err)
	}
	if opts.truthFile == "" {
		return plugin.Error(pluginName, c.Err("truth names no file"))
	}
	b := &Box{options: opts}
	if opts.cached {
		b.cache = &cache{kept: map[dns.Question]entry{}}
	}
	if opts.rate > 0 {
		b.rate = &bucket{perSecond: opts.rate}
	}
	c.OnStartup(b.open)
	c.OnShutdown(func() error { return b.truth.Close() })
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		b.Next = next
		return b
	})
	return nil
}

// open opens the file `truth`.
func (b *Box) open() (err error) {
	b.truth, err = jsonl.Open(b.truthFile, func(format string, values ...any) { log.Errorf("Truth: "+format, values...) })
	return err
}

// set sets a property.
func (o *options) set(property, value string) (err error) {
	switch property {
	case "truth":
		o.truthFile = value
	case "resolver":
		o.resolver = value
	case "site":
		o.site = value
	case "cache":
		o.cached = value == "on"
		if value != "on" && value != "off" {
			return errors.New("cache is either on or off, not '" + value + "'")
		}
	case "own":
		if o.own, err = readOwnTimes(value); err != nil {
			return err
		}
	case "filter":
		for _, zone := range strings.Split(value, ",") {
			o.filter = append(o.filter, dns.CanonicalName(zone))
		}
	case "rate":
		if o.rate, err = strconv.ParseFloat(value, 64); err != nil || o.rate < 1 {
			return errors.New("rate is a number of queries per second, at least 1, not '" + value + "'")
		}
	case "limit":
		o.limitAnswer = value
		if !slices.Contains([]string{limit503, limitRefused, limitSilence, limitEscalate}, value) {
			return errors.New("limit is 503, refused, silence or escalate, not '" + value + "'")
		}
	case "stop":
		o.stopAnswer = value
		if !slices.Contains([]string{stop403, stop451, stopProhibited}, value) {
			return errors.New("stop is 403, 451 or prohibited, not '" + value + "'")
		}
	case "stop_after":
		if o.stopAfter, err = strconv.ParseInt(value, 10, 64); err != nil || o.stopAfter < 0 {
			return errors.New("stop_after is a number of queries, at least 0, not '" + value + "'")
		}
	default:
		return errors.New("unknown property '" + property + "'")
	}
	return nil
}
