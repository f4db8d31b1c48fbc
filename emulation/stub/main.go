// Command crosslayer-stub is a DNS forwarder on a local address: it asks one upstream over any DNS transport, keeps the
// connection or resets it on command, resumes with tickets and early data, and tells what every query cost.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
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
