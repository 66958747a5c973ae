// Greenhouse is a device that waters plants. It shows cached sensors, a pump that
// reports progress, a log as a resource, and a prompt. Its tools also work over MCP/U.
//
//	go run ./thing/mcpserver/example/greenhouse
//
// It serves MCP at http://127.0.0.1:8080/mcp.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

func main() {
	listen := flag.String("listen", ":8080", "where MCP is served")
	mcpu := flag.String("mcpu", "", "where MCP/U is served")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d := newDevice(time.Second, mcpserver.Config{Listen: *listen, Announce: true, Log: slog.Default()})
	if *mcpu != "" {
		ln, err := net.Listen("tcp", *mcpu)
		if err != nil {
			log.Fatal(err)
		}
		log.Printf("serving MCP/U at %s", ln.Addr())
		go d.Device.ServeTCP(ctx, ln)
	}
	if err := d.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// greenhouse simulates the hardware: beds dry out, and watering makes them wet.
type greenhouse struct {
	second time.Duration // how long a second of watering takes

	mu      sync.Mutex
	watered map[string]time.Time
	log     []string
}

// beds are the names of the beds.
var beds = []string{"basil", "tomato", "thyme"}

// moisture returns the moisture of a bed in percent.
func (g *greenhouse) moisture(bed string) float64 {
	return math.Round(max(5, 80-time.Since(g.watered[bed]).Minutes()))
}

type bed struct {
	Bed string `json:"bed" jsonschema:"which bed"`
}

type climate struct {
	Bed         string  `json:"bed"`
	Moisture    float64 `json:"moisture_percent"`
	Temperature float64 `json:"temperature_celsius"`
}

type watering struct {
	Bed     string `json:"bed"`
	Seconds int    `json:"seconds"`
}

type watered struct {
	Moisture float64 `json:"moisture_percent"`
}

// bounds are limits that the Go type cannot express.
var bounds = json.RawMessage(`{"type":"object","properties":{
	"bed":{"type":"string","enum":["basil","tomato","thyme"],"description":"which bed"},
	"seconds":{"type":"integer","minimum":1,"maximum":30,"description":"for how long"}
},"required":["bed","seconds"],"additionalProperties":false}`)

func newDevice(second time.Duration, config mcpserver.Config) *mcpserver.Device {
	g := &greenhouse{second: second, watered: make(map[string]time.Time)}
	config.Title = "Greenhouse"
	config.Instructions = "Look at the climate of a bed before you water it. More than 70 percent is too wet for basil."
	d := mcpserver.New(thing.New("greenhouse", "1.0.0"), config)

	thing.Tool(d.Device, "read_climate", "Read the moisture and temperature of a bed", g.read, thing.Reads(), thing.Titled("Climate"))
	d.Cache("read_climate", 2*time.Second)
	thing.Tool(d.Device, "water", "Water a bed for some seconds", func(ctx context.Context, in watering) (watered, error) {
		wet, err := g.water(ctx, in)
		d.Invalidate("read_climate")
		d.Updated("greenhouse://log")
		return wet, err
	}, thing.WithSchema(bounds))

	d.Resource(mcpserver.Resource{URI: "greenhouse://log", Name: "log", Text: "What was watered when", MIME: "text/plain"},
		func(context.Context) (any, error) { return g.history(), nil })
	complete := func(_ context.Context, typed string, _ map[string]string) []string {
		return slices.DeleteFunc(slices.Clone(beds), func(b string) bool { return !strings.HasPrefix(b, typed) })
	}
	d.Template(mcpserver.Template{
		Resource: mcpserver.Resource{URI: "greenhouse://bed/{bed}", Text: "The climate of a bed"},
		Complete: map[string]mcpserver.Completer{"bed": complete},
	}, func(ctx context.Context, values map[string]string) (any, error) {
		if !slices.Contains(beds, values["bed"]) {
			return nil, mcpserver.ErrNotFound
		}
		return g.read(ctx, bed{values["bed"]})
	})
	d.Prompt(mcpserver.Prompt{Name: "advise", Text: "Ask what a bed needs", Arguments: []mcpserver.Argument{{Name: "bed", Required: true, Complete: complete}}},
		func(ctx context.Context, args map[string]string) ([]mcpserver.Message, error) {
			now, err := g.read(ctx, bed{args["bed"]})
			if err != nil {
				return nil, err
			}
			return []mcpserver.Message{{Role: "user", Content: fmt.Sprintf("My %s has %.0f percent moisture at %.0f °C. What should I do?", now.Bed, now.Moisture, now.Temperature)}}, nil
		})
	return d
}

func (g *greenhouse) read(_ context.Context, in bed) (climate, error) {
	if !slices.Contains(beds, in.Bed) {
		return climate{}, &thing.RefusedError{Reason: fmt.Sprintf("unknown bed %q; the beds are %s", in.Bed, strings.Join(beds, ", "))}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return climate{in.Bed, g.moisture(in.Bed), 21}, nil
}

// water runs the pump, and stops it when the call is cancelled.
func (g *greenhouse) water(ctx context.Context, in watering) (watered, error) {
	for i := range in.Seconds {
		mcpserver.Progress(ctx, float64(i), float64(in.Seconds), "watering the "+in.Bed)
		select {
		case <-time.After(g.second):
		case <-ctx.Done():
			g.note(in.Bed, i)
			return watered{}, fmt.Errorf("the pump was stopped after %d seconds", i)
		}
	}
	return watered{g.note(in.Bed, in.Seconds)}, nil
}

func (g *greenhouse) note(bed string, seconds int) (moisture float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watered[bed] = time.Now()
	g.log = append(g.log, fmt.Sprintf("%s: the %s had water for %d seconds", time.Now().Format(time.TimeOnly), bed, seconds))
	g.log = g.log[max(0, len(g.log)-100):]
	return g.moisture(bed)
}

func (g *greenhouse) history() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.log, "\n")
}
