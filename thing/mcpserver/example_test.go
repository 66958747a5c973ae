package mcpserver_test

import (
	"context"
	"log"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

type lamp struct {
	On bool `json:"on" jsonschema:"whether it is on"`
}

// A complete lamp.
func Example() {
	board := thing.New("lamp", "1.0.0")
	thing.Tool(board, "switch", "Switch the lamp on or off", func(_ context.Context, want lamp) (lamp, error) {
		return want, nil // set a pin here
	}, thing.Idempotent())
	device := mcpserver.New(board, mcpserver.Config{Listen: ":8080", Announce: true})
	if err := device.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
