//go:build linux

package linux_test

import (
	"context"
	"log"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/linux"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// A computer with a tool of its own beside those that are found.
func Example() {
	ctx := context.Background()
	board := linux.New("workshop-pi", "1.0.0", linux.Config{Lines: []string{"GPIO17", "GPIO27"}})
	defer board.Close()
	thing.Tool(board.Device, "announce", "Say something in the workshop", func(_ context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return "said " + in.Text, nil
	})
	device := mcpserver.New(board.Device, mcpserver.Config{Listen: "127.0.0.1:8642"})
	go board.Run(ctx, device.Refresh)
	if err := device.Run(ctx); err != nil {
		log.Print(err)
	}
}
