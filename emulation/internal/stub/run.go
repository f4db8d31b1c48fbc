package stub

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strings"

	"crosslayer.example/emulation/internal/control"
)

// logger prints the stub's own messages. Run discards those of the standard logger: there Go's HTTP/2 client reports errors
// of the upstream, which the rows of metrics contain.
var logger = log.New(os.Stderr, "crosslayer-stub: ", 0)

// Run runs the stub with these command-line arguments until the context ends.
func Run(ctx context.Context, arguments []string) error {
	if len(arguments) == 1 && strings.TrimLeft(arguments[0], "-") == "version" {
		fmt.Println(version())
		return nil
	}
	s, err := parseSettings(arguments, os.Stdout)
	if err != nil {
		return err
	}
	log.SetOutput(io.Discard)
	st, err := open(ctx, s)
	if err != nil {
		return err
	}
	defer st.close()
	st.serve()
	if s.control != "" {
		socket, err := control.Listen(s.control, "stub")
		if err != nil {
			return err
		}
		defer socket.Close()
		go socket.Serve(st.commands())
	}
	logger.Printf("answering on %s, asking %s", st.udp.LocalAddr(), s.url)
	<-ctx.Done()
	return nil
}

// open returns a stub with bound sockets. serve starts it.
func open(ctx context.Context, s settings) (*stub, error) {
	address, err := s.upstream.resolve(ctx)
	if err != nil {
		return nil, err
	}
	up, err := newExchanger(s, address)
	if err != nil {
		return nil, err
	}
	rows, err := openMetrics(s.metrics)
	if err != nil {
		return nil, err
	}
	st, err := newStub(s, up, rows)
	if err != nil || !s.gateway.IsValid() {
		return st, err
	}
	if st.gateway, err = newGateway(s, address.Addr(), up.(*session)); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

// version returns the versions of quic-go, of the DNS library and of Go.
func version() string {
	parts := []string{"crosslayer-stub"}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/quic-go/quic-go" || module.Path == "github.com/miekg/dns" {
				parts = append(parts, path.Base(module.Path)+"-"+strings.TrimPrefix(module.Version, "v"))
			}
		}
	}
	return strings.Join(append(parts, runtime.Version()), " ")
}
