// Command crosslayer-stub is a DNS forwarder on a local address: it asks one upstream over any DNS transport, keeps the
// connection or resets it on command, resumes with tickets and early data, and tells what every query cost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("crosslayer-stub: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

// run forwards queries until the context ends.
func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 1 && strings.TrimLeft(arguments[0], "-") == "version" {
		fmt.Println(version())
		return nil
	}
	s, err := parseSettings(arguments, os.Stdout)
	if err != nil {
		return err
	}
	address, err := s.upstream.resolve(ctx)
	if err != nil {
		return err
	}
	up, err := newExchanger(s, address)
	if err != nil {
		return err
	}
	rows, err := openMetrics(s.metrics)
	if err != nil {
		return err
	}
	st, err := newStub(s, up, rows)
	if err != nil {
		return err
	}
	defer st.close()
	st.serve()
	if s.control != "" {
		commands, err := listenControl(s.control, st)
		if err != nil {
			return err
		}
		defer commands.Close()
		go commands.serve()
	}
	log.Printf("answering on %s, asking %s", st.udp.LocalAddr(), s.url)
	<-ctx.Done()
	return nil
}

// version names what the stub is made of.
func version() string {
	words := []string{"crosslayer-stub"}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/quic-go/quic-go" || module.Path == "github.com/miekg/dns" {
				words = append(words, path.Base(module.Path)+"-"+strings.TrimPrefix(module.Version, "v"))
			}
		}
	}
	return strings.Join(append(words, runtime.Version()), " ")
}
