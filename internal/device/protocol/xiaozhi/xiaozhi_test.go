package xiaozhi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/protocoltest"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/thing"
	device "github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// TestContract runs the suite with devices written with our own SDK, as on MQTT and on a
// WebSocket. The transcripts do not use it.
func TestContract(t *testing.T) {
	for name, first := range map[string]bool{"silent at first": false, "hello first": true} {
		t.Run(name, func(t *testing.T) {
			protocoltest.Run(t, protocoltest.Subject{
				Protocol: xiaozhi.New(xiaozhi.Parts{}),
				Serve: func(far io.ReadWriteCloser, tools protocoltest.Tools) {
					d := device.New(thing.New("suite", "1.0.0"))
					for name, fn := range tools {
						thing.Tool(d.Device, name, name, func(_ context.Context, in map[string]any) (json.RawMessage, error) {
							args, err := json.Marshal(in)
							if err != nil {
								return nil, err
							}
							return fn(args)
						})
					}
					out := make(chan []byte, 16)
					defer close(out)
					go drain(far, out)
					d.Serve(context.Background(), device.Lines(stack{far, out}), first)
				},
			})
		})
	}
}

// stack buffers what a device sends, as a network does. A pipe does not, and would block
// if both sides write at once.
type stack struct {
	io.ReadCloser
	out chan<- []byte
}

func (s stack) Write(data []byte) (int, error) {
	s.out <- bytes.Clone(data)
	return len(data), nil
}

func drain(far io.Writer, out <-chan []byte) {
	for data := range out {
		far.Write(data)
	}
}
