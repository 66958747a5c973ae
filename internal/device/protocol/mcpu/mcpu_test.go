package mcpu_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/device/protocol/protocoltest"
	"github.com/ferrulehq/ferrule/thing"
)

// TestContract runs the suite with devices written with our own SDK. The transcripts do
// not use it.
func TestContract(t *testing.T) {
	protocoltest.Run(t, protocoltest.Subject{
		Protocol: mcpu.New(),
		Serve: func(far io.ReadWriteCloser, tools protocoltest.Tools) {
			device := thing.New("suite", "1.0.0")
			for name, fn := range tools {
				thing.Tool(device, name, name, func(_ context.Context, in map[string]any) (json.RawMessage, error) {
					args, err := json.Marshal(in)
					if err != nil {
						return nil, err
					}
					return fn(args)
				})
			}
			device.Serve(context.Background(), far)
		},
	})
}
