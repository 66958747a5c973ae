package main

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSimHTTP: a gateway uses the simulated board that serves MCP over HTTP.
func TestSimHTTP(t *testing.T) {
	c := newCommandLine(t)
	c.want(exitUsage, "--rate must not be negative", "sim", "http", "--rate", "-1")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	out, in := io.Pipe()
	go func() {
		ended <- run(ctx, []string{"sim", "http", "--tcp", "127.0.0.1:0", "--json"}, in, t.Output())
		in.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("ferrule sim http exits with %d", code)
		}
	})
	var listens struct{ Addresses []string }
	if err := json.NewDecoder(out).Decode(&listens); err != nil || len(listens.Addresses) != 1 {
		t.Fatalf("got %+v, %v", listens, err)
	}
	c.up("--http", "board="+listens.Addresses[0])
	c.until("board", ferrule.StateOnline)
	c.want(0, `"value":true`, "call", "board", "gpio_write", "pin=2", "value=true", "--json")
	c.want(0, `"value":true`, "call", "board", "gpio_read", "pin=2", "--json")
}
