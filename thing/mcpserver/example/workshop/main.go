// Workshop is a device that can hurt people. Its machines are offered only while the
// key is turned, nothing moves while the stop button is pressed, and callers need a
// token and are limited in rate.
//
//	WORKSHOP_TOKEN=… go run ./thing/mcpserver/example/workshop -key
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

func main() {
	listen := flag.String("listen", ":8080", "where MCP is served")
	key := flag.Bool("key", false, "the key is turned")
	flag.Parse()
	token := os.Getenv("WORKSHOP_TOKEN")
	if token == "" {
		log.Fatal("WORKSHOP_TOKEN is not set: everybody could use the machines")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d, shop := newDevice(time.Second, mcpserver.Config{
		Listen: *listen, Announce: true, Log: slog.Default(), Tokens: []string{token},
	})
	if *key {
		shop.turn(d, "key on")
	}
	if err := d.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// workshop simulates the hardware.
type workshop struct {
	second  time.Duration // how long a second of work takes
	stopped atomic.Bool
	calls   atomic.Int64
	failed  atomic.Int64
}

type cut struct {
	Millimetres int `json:"millimetres"`
}

type done struct {
	Cut int `json:"cut_millimetres"`
}

type counts struct {
	Calls   int64 `json:"calls"`
	Failed  int64 `json:"failed"`
	Stopped bool  `json:"stopped"`
}

var errStopped = errors.New("The stop button is pressed: nothing moves until a person releases it")

func newDevice(second time.Duration, config mcpserver.Config) (*mcpserver.Device, *workshop) {
	shop := &workshop{second: second}
	config.Title = "Workshop"
	config.Instructions = "Machines are offered only while a person has turned the key."
	config.Rate, config.Burst = 20, 40
	d := mcpserver.New(thing.New("workshop", "1.0.0"), config)
	thing.Tool(d.Device, "status", "Return the state of the workshop", func(context.Context, struct{}) (counts, error) {
		return counts{shop.calls.Load(), shop.failed.Load(), shop.stopped.Load()}, nil
	}, thing.Reads())
	thing.Tool(d.Device, "saw", "Saw a length", shop.saw, thing.Endangers(), thing.WithSchema(json.RawMessage(
		`{"type":"object","properties":{"millimetres":{"type":"integer","minimum":1,"maximum":600}},"required":["millimetres"]}`)))
	thing.Tool(d.Device, "extract", "Switch the dust extractor", func(_ context.Context, in struct {
		On bool `json:"on"`
	}) (bool, error) {
		return in.On, nil
	}, thing.Idempotent())
	d.Group("machines", "saw", "extract")
	d.Disable("machines")
	d.Before(func(_ context.Context, tool string, _ json.RawMessage) error {
		if tool != "status" && shop.stopped.Load() {
			return errStopped
		}
		return nil
	})
	d.After(func(_ context.Context, o mcpserver.Outcome) {
		shop.calls.Add(1)
		if o.Err != nil {
			shop.failed.Add(1)
		}
		slog.Info("a tool was called", "tool", o.Tool, "took", o.Took, "err", o.Err)
	})
	return d, shop
}

// turn simulates what a person does in the workshop.
func (w *workshop) turn(d *mcpserver.Device, what string) {
	switch what {
	case "key on":
		d.Enable("machines")
	case "key off":
		d.Disable("machines")
	case "stop":
		w.stopped.Store(true)
	case "release":
		w.stopped.Store(false)
	}
}

// saw saws 100 mm per second, and stops at once when it is cancelled.
func (w *workshop) saw(ctx context.Context, in cut) (done, error) {
	for at := 0; at < in.Millimetres; at += 10 {
		mcpserver.Progress(ctx, float64(at), float64(in.Millimetres), "sawing")
		select {
		case <-time.After(w.second / 10):
		case <-ctx.Done():
			return done{}, fmt.Errorf("the saw was stopped after %d mm", at)
		}
		if w.stopped.Load() {
			return done{}, fmt.Errorf("the stop button was pressed after %d mm", at)
		}
	}
	return done{in.Millimetres}, nil
}
