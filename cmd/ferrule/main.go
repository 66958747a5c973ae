// Command ferrule connects self-describing devices to AI agents.
//
// One file is one command: flags, calls into packages, printing. The gateway itself is in
// internal/gateway.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
