package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// lampThing returns a device that is an MCP server: a lamp with a readable state and
// notifications.
func lampThing(name string) *mcpserver.Device {
	var d *mcpserver.Device
	board := thing.New(name, "1.0.0")
	on := false
	type lamp struct {
		On bool `json:"on"`
	}
	thing.Tool(board, "switch", "Switch the lamp", func(_ context.Context, want lamp) (lamp, error) {
		on = want.On
		d.Updated(lampState)
		return want, nil
	}, thing.Idempotent())
	d = mcpserver.New(board, mcpserver.Config{})
	d.Resource(mcpserver.Resource{URI: lampState, Name: "state"}, func(context.Context) (any, error) { return lamp{on}, nil })
	return d
}

// lampState is the URI of a lamp's state.
const lampState = "lamp://state"

// lamp is the command lamp NAME ADDRESS: such a device, in its own process.
func lamp() {
	ln, err := net.Listen("tcp", os.Args[2])
	if err == nil {
		err = lampThing(os.Args[1]).Serve(context.Background(), ln)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// turnstile is the command turnstile VERSION MCPVERSION FILE [ADDRESS]: a device that is
// an MCP server and writes down each turn and each look before it does it. Its other
// tools depend on its version. Without an address it serves the listener that it
// inherits.
func turnstile() {
	version, mcpVersion, file := os.Args[1], os.Args[2], os.Args[3]
	var ln net.Listener
	var err error
	if len(os.Args) > 4 {
		ln, err = net.Listen("tcp", os.Args[4])
	} else {
		ln, err = net.FileListener(os.NewFile(3, "listener"))
	}
	counted, errFile := os.OpenFile(file, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = errFile
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	type token struct {
		Token string `json:"token"`
	}
	board := thing.New("turnstile", version)
	do := func(what string) func(context.Context, token) (token, error) {
		return func(_ context.Context, t token) (token, error) {
			_, err := fmt.Fprintf(counted, "%s %s\n", what, t.Token)
			time.Sleep(2 * time.Millisecond)
			return t, err
		}
	}
	thing.Tool(board, "turn", "Let somebody through", do("turn"))
	thing.Tool(board, "look", "Look whether somebody is there", do("look"), thing.Reads())
	thing.Tool(board, "only_in_"+version, "What only this version has", do("other"))
	handler := mcpserver.New(board, mcpserver.Config{}).Handler()
	http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mcpVersion == legacy && r.Header.Get("Mcp-Protocol-Version") >= modern {
			http.Error(w, "what is that?", http.StatusBadRequest)
			return
		}
		handler.ServeHTTP(w, r)
	}))
}

// TestHTTPDevice checks that agents use a device that is an MCP server: its tools and
// resources, in both versions of MCP, at the address of all devices and at its own.
func TestHTTPDevice(t *testing.T) {
	url := serveThing(t, lampThing("lamp"))
	g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: url, Name: "desk"}} })
	g.online("desk")
	if dev := g.device("desk"); dev.Transport != "http" || dev.Protocol != "mcp" || dev.Trust != ferrule.TrustAdopted {
		t.Errorf("got %+v", dev)
	}
	for _, mcpVersion := range mcpVersions {
		for path, names := range map[string][2]string{
			"/mcp":              {"desk__switch", "ferrule://devices/desk/resources/" + lampState},
			"/mcp/devices/desk": {"switch", lampState},
		} {
			a := dialAgent(t, g, mcpVersion, path)
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

// TestHTTPDeviceShown checks that people see the resources of such a device.
func TestHTTPDeviceShown(t *testing.T) {
	c := newCommandLine(t)
	c.up("--http", "desk="+serveThing(t, lampThing("lamp")))
	c.until("desk", ferrule.StateOnline)
	c.want(0, "TOOLS  RESOURCES  ADDRESS", "devices")
	c.want(0, "\n  resources\n    "+lampState+"\n", "tools", "desk")
	c.want(0, `"resources":["`+lampState+`"]`, "tools", "desk", "--json")
}

// TestHTTPDeviceByHand checks that contents such as an image with a text are printed.
func TestHTTPDeviceByHand(t *testing.T) {
	c := newCommandLine(t)
	c.up("--http", "gallery="+serveThing(t, galleryThing(false)))
	c.until("gallery", ferrule.StateOnline)
	c.want(0, `"celsius":-3,`, "call", "gallery", "measure", "n=0")
	t.Chdir(t.TempDir()) // pictures are written there
	c.want(0, `"mime":"image/png"`, "call", "gallery", "picture", "n=0", "--json")
	c.want(0, "first 0", "call", "gallery", "parts", "n=0")
	if pictures, err := filepath.Glob("ferrule-*"); err != nil || len(pictures) < 2 {
		t.Errorf("the pictures are %q, %v", pictures, err)
	}
}

// countingListener counts connections.
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

// TestHTTPDeviceConnections checks that calls share a connection, whether or not they may
// change something, and that none uses one that was idle for more than a second: the device
// may have lost its power since.
func TestHTTPDeviceConnections(t *testing.T) {
	for name, changing := range map[string]bool{"looking": false, "changing": true} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			counted := &countingListener{Listener: ln}
			url := serveThingOn(t, galleryThing(changing), counted)
			g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: url, Name: "gallery"}} }, unmeasured)
			g.online("gallery")
			made := func(calls int, pause time.Duration) int {
				before := counted.count.Load()
				for n := range calls {
					if _, err := g.call("gallery", "number", fmt.Sprintf(`{"n":%d}`, n), 0); err != nil {
						t.Fatal(err)
					}
					time.Sleep(pause)
				}
				return int(counted.count.Load() - before)
			}
			// The client has to read an answer to its end before the next call. A slow machine
			// may need more than one try.
			wait.For(t, "20 calls make 10 connections at most", func() bool { return made(20, 10*time.Millisecond) <= 10 })
			if n := made(3, 1500*time.Millisecond); n < 2 {
				t.Errorf("3 calls with long pauses made %d connections", n)
			}
		})
	}
}

// TestHTTPDeviceAway checks that a device that was away when the gateway started is used
// once it is there, and that calls before that did not run.
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
	wait.For(t, "the gateway has tried to connect", func() bool { return g.device("desk").Reason != "" })
	_, err = g.call("desk", "switch", `{"on":true}`, time.Second)
	if e := ferrule.AsError(err); e.Code != ferrule.Offline || e.MayHaveRun() {
		t.Errorf("got %v", err)
	}
	if ln, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- lampThing("lamp").Serve(ctx, ln) }()
	defer func() {
		cancel()
		<-ended
	}()
	g.online("desk")
	got, err := g.call("desk", "switch", `{"on":true}`, ample)
	var lamp struct{ On bool }
	if err != nil || json.Unmarshal([]byte(got), &lamp) != nil || !lamp.On {
		t.Errorf("%s, %v", got, err)
	}
}
