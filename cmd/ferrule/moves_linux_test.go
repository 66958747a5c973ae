package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// dialIn is a transport with one device that dials in, always with the same address.
type dialIn struct {
	ln      net.Listener
	address string
}

// Watch implements transport.Connector.
func (d *dialIn) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	defer context.AfterFunc(ctx, func() { d.ln.Close() })()
	var mu sync.Mutex
	var current net.Conn
	for instance := uint64(1); ; instance++ {
		conn, err := d.ln.Accept()
		if err != nil {
			return nil
		}
		watched := &watchedConn{Conn: conn}
		watched.gone = func() {
			mu.Lock()
			defer mu.Unlock()
			if current == conn {
				update("dial-in", nil)
			}
		}
		mu.Lock()
		current = conn
		update("dial-in", []transport.Sighting{{
			Address: d.address, Instance: instance, Inbound: true, Transport: "dial-in", Adopted: true, Protocols: []string{mcpu.Name},
			Open: func(context.Context) (transport.Link, error) {
				return transport.NewStream(watched, transport.Info{}, transport.DefaultLimits()), nil
			},
		}})
		mu.Unlock()
	}
}

// watchedConn reports when it is closed.
type watchedConn struct {
	net.Conn
	once sync.Once
	gone func()
}

func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { go c.gone() })
	return err
}

// dialInAt returns the transport of a device that dials in.
func dialInAt(ln net.Listener, address string) []transport.Connector {
	return []transport.Connector{&dialIn{ln, address}}
}

// nodeWithDialIn returns a gateway in this process that joins a cluster, and the address
// that a device can dial.
func nodeWithDialIn(t *testing.T, name string, c *natscluster.Cluster, address string) (*testGateway, string) {
	t.Helper()
	cfg := testConfig()
	joins(&cfg, name, c)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	g, err := gateway.New(gateway.Parts{
		Config: cfg, Data: data, Version: version(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)).With("at", name),
		Connectors: dialInAt(ln, address),
	})
	if err != nil {
		t.Fatal(err)
	}
	return runGateway(t, g, data), ln.Addr().String()
}

// joins configures a gateway as a node of a cluster.
func joins(cfg *config.Config, name string, c *natscluster.Cluster) {
	cfg.Listen = ""
	cfg.Cluster.Mode, cfg.Cluster.Node, cfg.Cluster.Servers, cfg.Cluster.Replicas, cfg.Cluster.Shards = "join", name, strings.Split(c.URLs(), ","), len(c.Servers), 2
	cfg.Cluster.Secret = c.Secret
}

// TestMoves checks that a device that connects to another node, while its link to the
// first is open, can be called there. It is the same device, and the first node has
// dropped it.
func TestMoves(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	a, atA := nodeWithDialIn(t, "a", servers, "24:6f:28:aa:bb:01")
	b, atB := nodeWithDialIn(t, "b", servers, "24:6f:28:aa:bb:01")
	const toy = "sim-board"
	var old net.Conn
	var longest time.Duration
	for i, at := range []string{atA, atB, atA, atB} {
		holder, other, name := a, b, "a"
		if at == atB {
			holder, other, name = b, a, "b"
		}
		start := time.Now()
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		device := sim.NewBoard()
		go device.Serve(t.Context(), conn)
		wait.For(t, "it can be called through the other node", func() bool {
			_, err := other.call(toy, "gpio_read", `{"pin":2}`, ample)
			return err == nil && other.device(toy).Node == name && holder.device(toy).State == ferrule.StateOnline
		})
		took := time.Since(holder.device(toy).Since)
		t.Logf("called by way of the other node %v after its hello, %v after it dialled", took.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
		if i > 0 {
			longest = max(longest, took)
		}
		if dev := other.device(toy); dev.Epoch != uint64(i+1) || dev.Trust != ferrule.TrustAdopted || dev.Address != "24:6f:28:aa:bb:01" {
			t.Errorf("got %+v", dev)
		}
		if old != nil {
			old.SetReadDeadline(time.Now().Add(wait.Ample))
			if _, err := io.Copy(io.Discard, old); err != nil {
				t.Errorf("the first node has not dropped it: %v", err)
			}
		}
		old = conn
		if n := len(other.Fleet.Devices()); n != 1 {
			t.Errorf("there are %d devices", n)
		}
	}
	figure.AtMost(t, "a device that has moved can be called through the other node", longest, time.Second)
}

// TestRemoteDecisions checks that a person can decide about a device on any node, and
// that the device's own node carries it out.
func TestRemoteDecisions(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	boards := startSim(t, sim.Config{})
	a := startGateway(t, nil, func(c *config.Config) { joins(c, "a", servers) })
	b := startGateway(t, nil, func(c *config.Config) {
		joins(c, "b", servers)
		c.Devices.TCP = []config.TCPDevice{{Address: boards.Addrs()[0], Pending: true}}
	})
	const board = "sim-board"
	decide := func(tool, args string) error {
		_, err := a.Pipeline.Handle(t.Context(), &ferrule.Call{
			Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna"}, Device: ferrule.GatewayID, Tool: tool, Args: []byte(args),
		})
		return err
	}
	wait.For(t, "a sees it pending", func() bool { return a.device(board).Trust == ferrule.TrustPending })
	if _, err := a.call(board, "gpio_read", `{"pin":2}`, 0); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("an agent can see it: %v", err)
	}
	if err := decide("adopt_device", `{"device":"sim-board"}`); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it can be called", func() bool {
		_, err := a.call(board, "gpio_read", `{"pin":2}`, 0)
		return err == nil
	})
	if err := decide("rename_device", `{"device":"sim-board","name":"robot"}`); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "a knows its names", func() bool { return a.device(board).ID == "robot" })
	if err := decide("label_device", `{"device":"sim-board","set":{"room":"attic"}}`); err != nil { // by its old name
		t.Fatal(err)
	}
	wait.For(t, "a knows its labels", func() bool { return a.device("robot").Labels["room"] == "attic" })
	for _, name := range []string{board, "robot"} {
		if _, err := a.call(name, "gpio_read", `{"pin":2}`, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.Requests.Add(t.Context(), []control.DeviceRequest{{Transport: "tcp", Address: startSim(t, sim.Config{}).Addrs()[0]}}); err != nil {
		t.Fatal(err)
	}
	if n := len(a.Fleet.Devices()); n != 2 || a.device(board).ID != "robot" {
		t.Errorf("there are %d devices, and the old name is that of %s", n, a.device(board).ID)
	}
	if err := decide("rename_device", `{"device":"robot","name":"sim-board"}`); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it is renamed back", func() bool { return a.device(board).ID == board })
	if err := decide("release_device", `{"device":"sim-board","for":"1m"}`); err != nil {
		t.Fatal(err)
	}
	if s := b.device(board).State; s != ferrule.StateReleased {
		t.Errorf("at its node it is %s", s)
	}
	wait.For(t, "a sees it released", func() bool { return a.device(board).State == ferrule.StateReleased })
	if _, err := a.call(board, "gpio_read", `{"pin":2}`, 0); ferrule.AsError(err).Code != ferrule.Busy {
		t.Errorf("got %v", err)
	}
	err := a.Trace(t.Context(), board, func(ferrule.Trace) {})
	if e := ferrule.AsError(err); e.Code != ferrule.NotFound || !strings.Contains(e.Message, "on node b") {
		t.Errorf("trace: %v", err)
	}
	listing := &ferrule.Call{Via: "a", Principal: ferrule.Principal{Role: ferrule.Person, Name: "owner"}, Device: ferrule.GatewayID, Tool: "list_devices"}
	if _, err := b.Pipeline.Handle(t.Context(), listing); ferrule.AsError(err).Code != ferrule.Denied {
		t.Errorf("another node may call any tool of the gateway: %v", err)
	}
	b.stop()
	err = decide("adopt_device", `{"device":"sim-board"}`)
	if e := ferrule.AsError(err); e.Code != ferrule.Offline || e.MayHaveRun() {
		t.Errorf("its node has ended: %v", err)
	}
}
