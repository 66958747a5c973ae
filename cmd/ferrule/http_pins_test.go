package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestHTTPPins checks that the pins, samples and polled tools of a device that is an MCP
// server are used as those of a board.
func TestHTTPPins(t *testing.T) {
	board := thing.New("greenhouse", "1.0.0")
	board.Output(2, "pump", "Water pump", nil)
	board.Analog(34, "light", "Light", func() int { return 512 }).Sampled(200*time.Millisecond, 20).Summary()
	thing.Tool(board, "climate", "The climate", func(context.Context, struct{}) (map[string]int, error) {
		return map[string]int{"celsius": 21}, nil
	}, thing.Reads(), thing.Polled(time.Second))
	c := newCommandLine(t)
	c.up("--http", "house="+serveThing(t, mcpserver.New(board, mcpserver.Config{})))
	c.until("house", ferrule.StateOnline)
	c.want(0, `"value":true`, "call", "house", "gpio_write", "pin=2", "value=true")
	if board.Level(2) != 1 {
		t.Error("the pump is off")
	}
	c.want(3, "pin must be 2, got 34", "call", "house", "gpio_write", "pin=34", "value=true")
	wait.For(t, "measured values", func() bool {
		_, text := c.run("history", "house")
		return strings.Contains(text, "\nlight ") && strings.Contains(text, "\nclimate_celsius ")
	})
}
