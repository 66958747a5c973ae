package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// lampThing is a device that is an MCP server: a lamp, whose state can be read.
func lampThing() *mcpserver.Device {
	board := thing.New("lamp", "1.0.0")
	on := false
	type lamp struct {
		On bool `json:"on"`
	}
	thing.Tool(board, "switch", "Switch the lamp", func(_ context.Context, want lamp) (lamp, error) {
		on = want.On
		return want, nil
	}, thing.Idempotent())
	d := mcpserver.New(board, mcpserver.Config{})
	d.Resource(mcpserver.Resource{URI: "lamp://state", Name: "state"}, func(context.Context) (any, error) { return lamp{on}, nil })
	return d
}

// TestHTTPDevice: a device that is an MCP server is used by agents of both eras, at the
// address of all devices and at its own: its tools, and its resources.
func TestHTTPDevice(t *testing.T) {
	url := serveThing(t, lampThing())
	g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: url, Name: "desk"}} })
	g.online("desk")
	if dev := g.device("desk"); dev.Medium != "http" || dev.Dialect != "mcp" || dev.Trust != ferrule.TrustAdopted {
		t.Errorf("got %+v", dev)
	}
	for _, era := range eras {
		for path, names := range map[string][2]string{
			"/mcp":              {"desk__switch", "ferrule://devices/desk/resources/lamp://state"},
			"/mcp/devices/desk": {"switch", "lamp://state"},
		} {
			a := dialAgent(t, g, era, path)
			for _, want := range []string{"true", "false"} {
				told, err := a.use(t.Context(), names[0], `{"on":`+want+`}`)
				if err != nil || told.isError {
					t.Fatalf("%s: %+v, %v", a.name, told, err)
				}
				read, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: names[1]})
				if err != nil || len(read.Contents) != 1 || !strings.Contains(read.Contents[0].Text, `"on":`+want) {
					t.Errorf("%s: %+v, %v", a.name, read, err)
				}
			}
		}
	}
	if n := len(g.outcomes("desk", "switch")); n != 8 {
		t.Errorf("%d calls are in the journal", n)
	}
}

// TestHTTPDeviceByHand: what is no value, say a picture with a text, is shown as well.
func TestHTTPDeviceByHand(t *testing.T) {
	c := newCommandLine(t)
	c.up("--http", "gallery="+serveThing(t, galleryThing(false)))
	c.until("gallery", ferrule.StateOnline)
	c.want(0, `"celsius":-3,`, "call", "gallery", "measure", "n=0")
	c.want(0, `[{"type":"image","data":"AAAAAAAAAAAAAA==","mime":"image/png"}]`, "call", "gallery", "picture", "n=0")
	c.want(0, `[{"type":"text","text":"first 0"},{"type":"image",`, "call", "gallery", "parts", "n=0")
}

// countingListener counts who connects.
type countingListener struct {
	net.Listener
	count atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.count.Add(1)
	}
	return conn, err
}

// TestHTTPDeviceConnections: calls that only look share a connection to a device that keeps
// it; what may change something has one of its own, so that it is known whether it was sent.
func TestHTTPDeviceConnections(t *testing.T) {
	for name, changing := range map[string]bool{"looking": false, "changing": true} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			counted := &countingListener{Listener: ln}
			url := serveThingOn(t, galleryThing(changing), counted)
			g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: url, Name: "gallery"}} })
			g.online("gallery")
			before := counted.count.Load()
			const calls = 20
			for n := range calls {
				if _, err := g.call("gallery", "number", fmt.Sprintf(`{"n":%d}`, n), 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond) // the answer is read to its end
			}
			made := int(counted.count.Load() - before)
			if changing != (made >= calls) {
				t.Errorf("%d calls made %d connections", calls, made)
			}
		})
	}
}

// TestHTTPDeviceAway: a device that was not there when the gateway began is used once it
// is, and what is called while it is away is known not to have run.
func TestHTTPDeviceAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	g := startGateway(t, nil, func(c *config.Config) {
		c.Devices.HTTP = []config.HTTPDevice{{URL: "http://" + address + "/mcp", Name: "desk"}}
	})
	time.Sleep(300 * time.Millisecond)
	_, err = g.call("desk", "switch", `{"on":true}`, time.Second)
	if e := ferrule.AsError(err); e.Code != ferrule.Offline || e.MayHaveRun() {
		t.Errorf("got %v", err)
	}
	if ln, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- lampThing().Serve(ctx, ln) }()
	defer func() {
		cancel()
		<-ended
	}()
	g.online("desk")
	got, err := g.call("desk", "switch", `{"on":true}`, 5*time.Second)
	var lamp struct{ On bool }
	if err != nil || json.Unmarshal([]byte(got), &lamp) != nil || !lamp.On {
		t.Errorf("%s, %v", got, err)
	}
}
