package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// homeTap is a connection between the gateway and a Home Assistant. It notes what the gateway
// sends, also while Home Assistant restarts, and can be cut.
type homeTap struct {
	net.Listener
	mu     sync.Mutex
	conns  []net.Conn
	calls  map[string]int // of services, by entity
	tokens []string       // of logins
}

// tapped is what the gateway sends.
type tapped struct {
	Type   string
	Token  string `json:"access_token"`
	Target struct {
		Entities []string `json:"entity_id"`
	}
}

// newHomeTap listens in front of a Home Assistant.
func newHomeTap(t testing.TB, target string) *homeTap {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tap := &homeTap{Listener: listener, calls: make(map[string]int)}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			tap.mu.Lock()
			tap.conns = append(tap.conns, near, far)
			tap.mu.Unlock()
			read, write := io.Pipe()
			tasks.Go(func() {
				tap.listen(read)
				io.Copy(io.Discard, read)
			})
			tasks.Go(func() {
				io.Copy(far, io.TeeReader(near, write))
				write.Close()
				far.Close()
			})
			tasks.Go(func() {
				io.Copy(near, far)
				near.Close()
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		tap.cut()
		tasks.Wait()
	})
	return tap
}

// listen notes what the gateway sends on one connection.
func (tap *homeTap) listen(r io.Reader) {
	in := bufio.NewReader(r)
	if _, err := http.ReadRequest(in); err != nil {
		return
	}
	for {
		frame, err := ws.ReadFrame(in)
		if err != nil {
			return
		}
		var m tapped
		if frame.Header.OpCode != ws.OpText || json.Unmarshal(ws.UnmaskFrame(frame).Payload, &m) != nil {
			continue
		}
		tap.mu.Lock()
		switch m.Type {
		case "auth":
			tap.tokens = append(tap.tokens, m.Token)
		case "call_service":
			for _, id := range m.Target.Entities {
				tap.calls[id]++
			}
		}
		tap.mu.Unlock()
	}
}

// sent returns how many calls of services were sent for an entity.
func (tap *homeTap) sent(entity string) int {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	return tap.calls[entity]
}

// logins returns the tokens that were sent.
func (tap *homeTap) logins() []string {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	return append([]string(nil), tap.tokens...)
}

// cut breaks every connection.
func (tap *homeTap) cut() {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	for _, conn := range tap.conns {
		conn.Close()
	}
	tap.conns = nil
}

// homeUser calls one entity again and again, with different arguments in turn.
type homeUser struct {
	device, entity string
	steps          [][2]string // tools and arguments

	calls    int
	outcomes map[string]int
}

// use makes calls until stop is set. Each has one outcome, which fits what was sent.
func (u *homeUser) use(t *testing.T, g *testGateway, tap *homeTap, stop *atomic.Bool) {
	u.outcomes = make(map[string]int)
	for ; !stop.Load(); u.calls++ {
		before := tap.sent(u.entity)
		step := u.steps[u.calls%len(u.steps)]
		answer, err := g.call(u.device, step[0], step[1], 20*time.Second)
		sent := tap.sent(u.entity) - before
		// The tap passes a call on before it has noted it, so it can be answered first.
		for waited := time.Now(); sent == 0 && err == nil && time.Since(waited) < wait.Ample; sent = tap.sent(u.entity) - before {
			time.Sleep(time.Millisecond)
		}
		var got struct{ Confirmed bool }
		what := "not confirmed"
		switch {
		case err != nil:
			e := ferrule.AsError(err)
			what = string(e.Code)
			// A call without an answer may be lost where the connection was cut.
			if e.Code == ferrule.Internal || !e.MayHaveRun() && e.Code != ferrule.Refused && sent > 0 || sent > 1 {
				t.Errorf("%s of %s was sent %d times: %v", step[0], u.entity, sent, err)
			}
		case json.Unmarshal([]byte(answer), &got) != nil, sent != 1:
			t.Errorf("%s of %s was sent %d times: %s", step[0], u.entity, sent, answer)
		case got.Confirmed:
			what = "confirmed"
		}
		if sent > 1 {
			t.Errorf("%s of %s was sent %d times", step[0], u.entity, sent)
		}
		u.outcomes[what]++
		time.Sleep(20 * time.Millisecond) // not too many calls
	}
}

// homeAt uses a Home Assistant at an address, with all entities, and permits everything.
func homeAt(address net.Addr, file string) func(*config.Config) {
	return func(c *config.Config) {
		c.Devices.HomeAssistant = []config.Home{{URL: "http://" + address.String(), Name: "home", File: file, Adopt: "all", All: true}}
		c.Policy.Preset = "open"
		c.Calls.PerMinute, c.Calls.Refused = 0, 0
	}
}

// homeOnline returns how many devices of the home are online.
func homeOnline(g *testGateway) (n int) {
	for _, d := range g.Fleet.Devices() {
		if d.Hub == "home" && d.State == ferrule.StateOnline {
			n++
		}
	}
	return n
}

// TestHomeRestart: a real Home Assistant is stopped, killed, and cut off in the middle of calls.
// Each call has one outcome, nothing is sent twice, and all devices are back.
// A token that was refused is not sent again until its file has another one.
func TestHomeRestart(t *testing.T) {
	ha := homeassistant.Start(t, homeassistant.Options{})
	tap := newHomeTap(t, strings.TrimPrefix(ha.URL, "http://"))
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(ha.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, nil, homeAt(tap.Addr(), file))
	for _, id := range []string{"bed-light", "ceiling-lights", "hall-window", "demo"} {
		g.online(id)
	}
	all, since := 0, time.Now()
	wait.For(t, "no more devices come", func() bool {
		if n := homeOnline(g); n != all {
			all, since = n, time.Now()
		}
		return all > 40 && time.Since(since) > 2*time.Second
	})
	t.Logf("%d devices", all)
	for _, fault := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"stopped", func(t *testing.T) { ha.Stop(t); ha.Restart(t) }},
		{"killed", func(t *testing.T) { ha.Kill(); ha.Restart(t) }},
		{"cut off", func(t *testing.T) { tap.cut() }},
	} {
		t.Run(fault.name, func(t *testing.T) { restartHome(t, g, tap, all, fault.do) })
	}
	t.Run("token", func(t *testing.T) { changeHomeToken(t, g, tap, file, ha.Token, all) })
}

// restartHome calls devices while a fault happens.
func restartHome(t *testing.T, g *testGateway, tap *homeTap, all int, fault func(t *testing.T)) {
	users := []*homeUser{
		{device: "bed-light", entity: "light.bed_light", steps: [][2]string{{"turn_on", `{"brightness":50}`}, {"turn_on", `{"brightness":90}`}, {"turn_off", `{}`}}},
		{device: "ceiling-lights", entity: "light.ceiling_lights", steps: [][2]string{{"toggle", `{}`}}},
		{device: "hall-window", entity: "cover.hall_window", steps: [][2]string{{"set_cover_position", `{"position":40}`}, {"set_cover_position", `{"position":20}`}}},
		{device: "demo", entity: "lock.front_door", steps: [][2]string{{"unlock", `{"entity":"lock.front_door"}`}, {"lock", `{"entity":"lock.front_door"}`}}},
	}
	var stop atomic.Bool
	var tasks sync.WaitGroup
	outcomes := make(map[string]int)
	count := func() {
		if err := journal.Read(g.data, func(e ferrule.Entry) error {
			if e.Phase == ferrule.Outcome {
				outcomes[e.Device]++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	count()
	before := fmt.Sprint(outcomes)
	for _, u := range users {
		outcomes[u.device] *= -1
		tasks.Go(func() { u.use(t, g, tap, &stop) })
	}
	// A lock takes two seconds: its second call is under way.
	locks := tap.sent("lock.front_door")
	wait.For(t, "a lock is called", func() bool { return tap.sent("lock.front_door") >= locks+2 })
	logins := len(tap.logins())
	fault(t)
	back := time.Now()
	wait.For(t, "all devices are back", func() bool { return len(tap.logins()) > logins && homeOnline(g) >= all })
	figure.AtMost(t, "time until all devices are back", time.Since(back), 10*time.Second)
	locks = tap.sent("lock.front_door")
	wait.For(t, "a lock is called again", func() bool { return tap.sent("lock.front_door") > locks })
	stop.Store(true)
	tasks.Wait()
	count()
	for _, u := range users {
		t.Logf("%s: %v", u.device, u.outcomes)
		if u.outcomes["confirmed"] == 0 {
			t.Errorf("no call of %s was confirmed", u.device)
		}
		if outcomes[u.device] != u.calls {
			t.Errorf("%s: %d calls have %d outcomes in the journal (before: %s)", u.device, u.calls, outcomes[u.device], before)
		}
	}
}

// changeHomeToken replaces the token by a wrong one, and that by the right one.
func changeHomeToken(t *testing.T, g *testGateway, tap *homeTap, file, token string, all int) {
	before := len(tap.logins())
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong-token")
	tap.cut()
	wait.For(t, "the token is refused", func() bool { return len(tap.logins()) > before && homeOnline(g) == 0 })
	_, err := g.call("bed-light", "turn_on", `{}`, 0)
	if e := ferrule.AsError(err); e.Code != ferrule.Offline {
		t.Errorf("without a connection: %v", err)
	}
	write(token)
	began := time.Now()
	wait.For(t, "all devices are back", func() bool { return homeOnline(g) >= all })
	t.Logf("all devices were back %v after the token was replaced", time.Since(began).Round(time.Millisecond))
	if got := tap.logins()[before:]; len(got) != 2 || got[0] != "wrong-token" || got[1] != token {
		t.Errorf("%d logins, want a wrong one and a right one", len(got))
	}
}
