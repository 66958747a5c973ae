package main

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/lan"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// What an agent can expect of devices that announce themselves.
const (
	seenWithin = 3 * time.Second  // of their start
	goneWithin = 2 * time.Second  // of their goodbye
	shortTTL   = 10 * time.Second // of records in this test
)

var announcedRounds = flag.Int("announced-rounds", 1, "how often TestAnnounced starts and ends each pair of devices")

// TestAnnounced uses devices on another host that a real avahi announces. After adoption
// an agent sees their tools after they start, and loses them after they end.
func TestAnnounced(t *testing.T) {
	const pairs = 2
	h := newHouse(t, "-test.parallel", strconv.Itoa(pairs), "-announced-rounds", strconv.Itoa(*announcedRounds))
	if h == nil {
		return
	}
	h.lan.Avahi()
	for i := range pairs {
		t.Run(fmt.Sprint("pair ", i), func(t *testing.T) {
			t.Parallel()
			h := h.in(t)
			both := lamps{h.lamp(fmt.Sprintf("lamp-%d-left", i), 8000+2*i), h.lamp(fmt.Sprintf("lamp-%d-right", i), 8001+2*i)}
			a := h.agent()
			both.start()
			a.adopts(both...)
			a.sees(both, true)
			both.stop()
			a.sees(both, false)
			var seen, gone time.Duration
			for range *announcedRounds {
				began := time.Now()
				both.start()
				a.sees(both, true)
				seen = max(seen, time.Since(began))
				a.mustUse(both[0].id+"__switch", `{"on":true}`, nil)
				// They go on serving: only the goodbye counts.
				began = time.Now()
				for _, lamp := range both {
					end(lamp.publisher)
				}
				a.sees(both, false)
				gone = max(gone, time.Since(began))
				both.stop()
			}
			figure.AtMost(t, "an agent sees two devices after their start", seen, seenWithin)
			figure.AtMost(t, "two devices are gone after their goodbye", gone, goneWithin)
		})
	}
}

// TestAnnouncedPowerCut checks a host that loses power: its devices stay listed until
// their announcements expire.
func TestAnnouncedPowerCut(t *testing.T) {
	h := newHouse(t)
	if h == nil {
		return
	}
	h.lan.Avahi()
	lamp := h.lamp("lamp-cut", 8000)
	lamp.host = "cut"
	lamp.serve()
	h.lan.PublishFor(shortTTL, lamp.id, lamp.host, netip.MustParseAddrPort(farAddress+":8000"), "/mcp")
	a := h.agent()
	a.adopts(lamp)
	all := lamps{lamp}
	a.sees(all, true)
	time.Sleep(shortTTL + time.Second) // its records have been refreshed by then
	if !a.lists(lamp.id + "__") {
		t.Errorf("it is gone although it is announced: %+v", h.device(lamp.address()))
	}
	began := time.Now()
	h.lan.Cut()
	a.sees(all, false)
	figure.AtMost(t, fmt.Sprintf("a device without power is gone, with records that last for %v", shortTTL), time.Since(began), shortTTL+time.Second)
	if why := h.device(lamp.id).Reason; why != "no longer in reach" {
		t.Errorf("it is gone because %s", why) // not because of a broken connection
	}
}

// TestAnnouncedImpostor checks that a device which announces the MAC address of an adopted
// lamp does not get its calls: not while the lamp serves where it was, and not afterwards,
// because it is of another Kind.
func TestAnnouncedImpostor(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h := newHouse(t)
	if h == nil {
		return
	}
	h.lan.Avahi()
	const mac = "98:a3:16:f9:d9:34"
	lamp, impostor := h.lamp("lamp", 8000), h.lamp("impostor", 8001)
	announce := func(l *announced) {
		l.publisher = h.lan.Publish(l.id, strconv.Itoa(l.port), "path=/mcp", "mac="+mac)
	}
	lamp.serve()
	impostor.serve()
	announce(lamp)
	wait.For(t, "the lamp is found", func() bool { return h.device("mdns:"+mac).ID != "" })
	h.want(0, "lamp is adopted.\nIt is a lamp at mdns:"+mac+".\n", "adopt", "mdns:"+mac)
	h.want(0, "", "call", "lamp", "switch", "on=true")

	end(lamp.publisher) // a goodbye, which anybody can send
	wait.For(t, "the lamp is gone", func() bool { return h.device("mdns:"+mac).State == string(ferrule.StateOffline) })
	announce(impostor)
	lampIs := func(state ferrule.State, trust ferrule.Trust, model string) func() bool {
		return func() bool {
			dev := h.device("mdns:" + mac)
			return dev.State == string(state) && dev.Trust == string(trust) && dev.Model == model
		}
	}
	wait.For(t, "the lamp is back", lampIs(ferrule.StateOnline, ferrule.TrustAdopted, "lamp"))
	h.want(0, "", "call", "lamp", "switch", "on=false")

	end(lamp.server)
	wait.For(t, "the impostor waits to be adopted", lampIs(ferrule.StateOnline, ferrule.TrustPending, "impostor"))
	h.want(exitNotRun, "not adopted", "call", "lamp", "switch", "on=true")
	h.want(0, "offers something else than before", "devices")
	lamp.serve()
	end(impostor.server)
	wait.For(t, "the lamp is trusted again", lampIs(ferrule.StateOnline, ferrule.TrustAdopted, "lamp"))
}

// farAddress is that of the host which has devices, and houseListen where agents are served.
const (
	farAddress  = "10.77.0.2"
	houseListen = "127.0.0.1:3377"
)

// house is a gateway that looks for announced devices, and another host with some.
type house struct {
	commandLine
	lan *lan.LAN
}

// newHouse runs the test again in network namespaces, with a gateway; it returns nil in
// the outer process.
func newHouse(t *testing.T, args ...string) *house {
	t.Helper()
	if os.Getenv(namespaceMark) == "" {
		t.Parallel()
		lan.Need(t)
	}
	if !inNamespace(t, syscall.CLONE_NEWNET, args...) {
		return nil
	}
	h := &house{newCommandLine(t), lan.New(t, "10.77.0")}
	file := filepath.Join(t.TempDir(), "ferrule.yaml")
	if err := os.WriteFile(file, []byte(openLoopback+"retry: {grace: 0s}\n"), 0o600); err != nil { // agents see at once who is gone
		t.Fatal(err)
	}
	h.up("--http", "auto", "--listen", houseListen, "--config", file)
	return h
}

// in returns the house for a subtest.
func (h *house) in(t *testing.T) *house { return &house{commandLine{t}, h.lan.In(t)} }

// announced is a lamp on the other host.
type announced struct {
	house             *house
	id, host          string
	port              int
	server, publisher *exec.Cmd
}

func (h *house) lamp(id string, port int) *announced {
	return &announced{house: h, id: id, host: "rig", port: port}
}

// address returns the address of the lamp before it is known by name.
func (l *announced) address() string { return "mdns:" + l.id + "@" + l.host + ".local" }

// serve starts the lamp.
func (l *announced) serve() {
	l.server = l.house.lan.Start("", "lamp", l.id, fmt.Sprint(":", l.port))
}

// lamps are some of them.
type lamps []*announced

// start starts them, and has avahi announce them.
func (all lamps) start() {
	for _, l := range all {
		l.serve()
		l.publisher = l.house.lan.Publish(l.id, strconv.Itoa(l.port), "path=/mcp")
	}
}

// stop ends them.
func (all lamps) stop() {
	for _, l := range all {
		end(l.publisher)
		end(l.server)
	}
}

// homeAgent is an agent of a house.
type homeAgent struct {
	*testAgent
	house *house
}

// agent connects an agent, which waits for the gateway.
func (h *house) agent() *homeAgent {
	h.t.Helper()
	wait.For(h.t, "the gateway answers", func() bool {
		code, _ := h.run("devices")
		return code == 0
	})
	return &homeAgent{connectAgent(h.t, legacy, "/mcp", &mcp.StreamableClientTransport{Endpoint: "http://" + houseListen + "/mcp"}), h}
}

// adopts adopts lamps that were found. The agent must not see them before.
func (a *homeAgent) adopts(found ...*announced) {
	a.t.Helper()
	for _, lamp := range found {
		wait.For(a.t, "it is found", func() bool { return a.house.device(lamp.address()).ID != "" })
		if dev := a.house.device(lamp.address()); dev.Trust != string(ferrule.TrustPending) || a.lists(lamp.id) {
			a.t.Errorf("it was merely found: %+v", dev)
		}
	}
	for _, lamp := range found {
		a.house.want(0, "is adopted", "adopt", lamp.address())
	}
}

// sees waits until the agent sees the tools of some lamps, or none of them. It looks
// when its list changes, as agents do.
func (a *homeAgent) sees(all lamps, offered bool) {
	a.t.Helper()
	late := time.After(wait.Ample)
	for _, lamp := range all {
		for a.lists(lamp.id+"__") != offered {
			select {
			case <-a.tools:
			case <-late:
				a.t.Fatalf("want %s offered: %t, but it is %+v", lamp.id, offered, a.house.device(lamp.address()))
			}
		}
	}
}
