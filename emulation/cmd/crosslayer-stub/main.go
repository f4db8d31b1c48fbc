// Command crosslayer-stub is a DNS forwarder on a local address. It forwards queries to one upstream over any DNS
// transport, keeps the connection or resets it on command, resumes sessions with tickets and early data, and writes metrics
// of every query.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"crosslayer.example/emulation/internal/stub"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := stub.Run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "crosslayer-stub:", err)
		stop()
		os.Exit(1)
	}
}
