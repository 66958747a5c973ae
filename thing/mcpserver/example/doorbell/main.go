// Doorbell is a device with a camera and a lock. It shows pictures, a resource with
// subscriptions, and a door that opens only after a person has confirmed.
//
//	go run ./thing/mcpserver/example/doorbell
//
// It serves MCP at http://127.0.0.1:8080/mcp. Somebody rings every minute.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

func main() {
	listen := flag.String("listen", ":8080", "where MCP is served")
	sockets := flag.String("websocket", "", "where MCP is served over WebSockets")
	every := flag.Duration("ring", time.Minute, "how often somebody rings")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d, bell := newDevice(mcpserver.Config{Listen: *listen, WebSocket: *sockets, Announce: true, Log: slog.Default()})
	go func() {
		for range time.Tick(*every) {
			bell.press()
		}
	}()
	if err := d.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// doorbell simulates the hardware.
type doorbell struct {
	changed func()

	mu      sync.Mutex
	visitor time.Time // when somebody rang
	opened  int
}

const lastVisitor = "doorbell://visitor"

type confirmation struct {
	Open bool `json:"open" jsonschema:"open the door now"`
}

func newDevice(config mcpserver.Config) (*mcpserver.Device, *doorbell) {
	config.Title = "Doorbell"
	config.Instructions = "Look before you open. The door opens only if the person at home agrees."
	d := mcpserver.New(thing.New("doorbell", "1.0.0"), config)
	bell := &doorbell{changed: func() { d.Updated(lastVisitor) }}
	thing.Tool(d.Device, "snapshot", "Take a picture of who is at the door", func(context.Context, struct{}) (thing.Image, error) {
		return bell.picture()
	}, thing.Reads())
	thing.Tool(d.Device, "open_door", "Open the door, if the person at home agrees", func(ctx context.Context, _ struct{}) (string, error) {
		answer, err := mcpserver.AskUser[confirmation](ctx, "open", "Somebody wants the door opened. Open it?")
		if err != nil {
			return "", err
		}
		if !answer.Open {
			return "", &thing.RefusedError{Reason: "The person at home said no: the door is closed"}
		}
		mcpserver.Log(ctx, slog.LevelWarn, "the door is open")
		return bell.open(), nil
	}, thing.Endangers())
	d.Resource(mcpserver.Resource{URI: lastVisitor, Name: "visitor", Text: "When somebody rang, and how they looked"}, func(context.Context) (any, error) {
		picture, err := bell.picture()
		return thing.Parts{bell.report(), picture}, err
	})
	return d, bell
}

// press simulates the button.
func (b *doorbell) press() {
	b.mu.Lock()
	b.visitor = time.Now()
	b.mu.Unlock()
	b.changed()
}

func (b *doorbell) report() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.visitor.IsZero() {
		return "nobody has rung"
	}
	return "somebody rang at " + b.visitor.Format(time.TimeOnly)
}

func (b *doorbell) open() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	return fmt.Sprintf("the door is open, for the %d. time", b.opened)
}

// picture simulates the camera: a dark image, with a light while somebody is there.
func (b *doorbell) picture() (thing.Image, error) {
	b.mu.Lock()
	there := time.Since(b.visitor) < time.Minute
	b.mu.Unlock()
	view := image.NewGray(image.Rect(0, 0, 64, 48))
	if there {
		for y := 12; y < 36; y++ {
			for x := 24; x < 40; x++ {
				view.SetGray(x, y, color.Gray{Y: 200})
			}
		}
	}
	var file bytes.Buffer
	err := png.Encode(&file, view)
	return thing.Image{MIME: "image/png", Data: file.Bytes()}, err
}
