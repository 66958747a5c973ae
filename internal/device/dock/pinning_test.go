package dock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// door is a manifest with something of everything.
func door() *ferrule.Manifest {
	return &ferrule.Manifest{
		Model: "door", Version: "1", Instructions: "Be careful.",
		Tools: []ferrule.Tool{
			{Name: "look", Text: "Looks.", Effect: ferrule.Reads},
			{Name: "open", Text: "Opens the door.", Effect: ferrule.Endangers, Input: json.RawMessage(`{"type":"object","properties":{"by":{"type":"integer","maximum":10}}}`)},
			{Name: "lock", Text: "Locks it.", UserOnly: true},
			{Name: "ring", Text: "Rings.", Idempotent: true},
		},
		Pins:       []ferrule.Pin{{Number: 1, Name: "bell"}, {Number: 2, Name: "motor"}},
		Resources:  []ferrule.Resource{{URI: "door://log", Text: "The log."}, {URI: "door://plan"}, {URI: "door://day/{day}", Template: true}},
		Prompts:    []ferrule.Prompt{{Name: "report", Text: "Reports."}, {Name: "greet"}},
		Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.GetPrompt, ferrule.Complete, ferrule.Subscribe, ferrule.Unsubscribe},
	}
}

// use is a call to a door.
type use struct {
	op   ferrule.Operation
	name string
}

func (u use) String() string { return strings.TrimSpace(string(u.op) + " " + u.name) }

var everyUse = []use{
	{ferrule.CallTool, "look"}, {ferrule.CallTool, "open"}, {ferrule.CallTool, "ring"}, {ferrule.CallTool, "blow"},
	{ferrule.ReadResource, "door://log"}, {ferrule.ReadResource, "door://plan"}, {ferrule.ReadResource, "door://new"}, {ferrule.ReadResource, "door://day/1"},
	{ferrule.GetPrompt, "report"}, {ferrule.GetPrompt, "greet"}, {ferrule.GetPrompt, "obey"},
}

// usable returns what an agent can use, and checks that nothing else reaches the board.
func (w *world) usable(b *board, id string) map[string]bool {
	w.t.Helper()
	var reached atomic.Int64
	b.set(func(b *board) {
		b.invoke = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			reached.Add(1)
			return &ferrule.Result{Value: json.RawMessage(`1`)}, nil
		}
	})
	p := pipeline.New(pipeline.Parts{Config: pipeline.DefaultConfig(), Journal: noJournal{}, Fleet: w.fleet})
	all := make(map[string]bool)
	for _, u := range everyUse {
		before := reached.Load()
		_, err := p.Handle(w.t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "a"}, Device: id, Operation: u.op, Tool: u.name})
		if all[u.String()] = err == nil; (reached.Load() > before) != (err == nil) {
			w.t.Errorf("%s: %v, and it reached the board %d times", u, err, reached.Load()-before)
		}
	}
	return all
}

// noJournal records nothing.
type noJournal struct{}

func (noJournal) Append(ferrule.Entry, bool) error { return nil }

// TestPinning changes one thing at a time of a device with all ways to come back, and
// checks that what changed cannot be used until it is accepted, and all else can.
func TestPinning(t *testing.T) {
	tool := func(m *ferrule.Manifest, name string) *ferrule.Tool { return m.Tool(name) }
	for name, test := range map[string]struct {
		change  func(m *ferrule.Manifest)
		without string // what cannot be used while it waits
		waiting int
		then    string // what cannot be used after it was accepted
	}{
		"nothing":           {func(*ferrule.Manifest) {}, "", 0, ""},
		"version":           {func(m *ferrule.Manifest) { m.Version = "2" }, "", 0, ""},
		"order":             {func(m *ferrule.Manifest) { m.Tools[0], m.Tools[1] = m.Tools[1], m.Tools[0] }, "", 0, ""},
		"description":       {func(m *ferrule.Manifest) { tool(m, "open").Text = "Opens any door." }, "open", 1, ""},
		"title":             {func(m *ferrule.Manifest) { tool(m, "open").Title = "Open" }, "open", 1, ""},
		"schema":            {func(m *ferrule.Manifest) { tool(m, "open").Input = json.RawMessage(`{"type":"object"}`) }, "open", 1, ""},
		"result":            {func(m *ferrule.Manifest) { tool(m, "open").Output = json.RawMessage(`{"type":"object"}`) }, "open", 1, ""},
		"milder effect":     {func(m *ferrule.Manifest) { tool(m, "open").Effect = ferrule.Changes }, "open", 1, ""},
		"much milder":       {func(m *ferrule.Manifest) { tool(m, "open").Effect = ferrule.Reads }, "open", 1, ""},
		"idempotent":        {func(m *ferrule.Manifest) { tool(m, "open").Idempotent = true }, "open", 1, ""},
		"for agents":        {func(m *ferrule.Manifest) { tool(m, "lock").UserOnly = false }, "", 1, ""},
		"mixed effects":     {func(m *ferrule.Manifest) { tool(m, "ring").Effect, tool(m, "ring").Idempotent = ferrule.Reads, false }, "ring", 1, ""},
		"stricter":          {func(m *ferrule.Manifest) { tool(m, "ring").Effect = ferrule.Endangers }, "", 0, ""},
		"poll":              {func(m *ferrule.Manifest) { tool(m, "look").Poll = ferrule.Duration(time.Second) }, "look", 1, ""},
		"new tool":          {func(m *ferrule.Manifest) { m.Tools = append(m.Tools, ferrule.Tool{Name: "blow"}) }, "", 1, ""},
		"renamed tool":      {func(m *ferrule.Manifest) { tool(m, "open").Name = "blow" }, "open", 1, "open"},
		"removed tool":      {func(m *ferrule.Manifest) { m.Tools = m.Tools[1:] }, "look", 0, "look"},
		"changed resource":  {func(m *ferrule.Manifest) { m.Resources[0].Text = "Read this first." }, "read door://log", 1, ""},
		"new resource":      {func(m *ferrule.Manifest) { m.Resources = append(m.Resources, ferrule.Resource{URI: "door://new"}) }, "read door://new", 1, ""},
		"size of resource":  {func(m *ferrule.Manifest) { m.Resources[0].Size = 1000 }, "", 0, ""},
		"changed template":  {func(m *ferrule.Manifest) { m.Resources[2].Text = "Days." }, "read door://day/1", 1, ""},
		"changed prompt":    {func(m *ferrule.Manifest) { m.Prompts[0].Text = "Obeys." }, "prompt report", 1, ""},
		"prompt argument":   {func(m *ferrule.Manifest) { m.Prompts[0].Arguments = []ferrule.PromptArgument{{Name: "x"}} }, "prompt report", 1, ""},
		"new prompt":        {func(m *ferrule.Manifest) { m.Prompts = append(m.Prompts, ferrule.Prompt{Name: "obey"}) }, "", 1, ""},
		"instructions":      {func(m *ferrule.Manifest) { m.Instructions = "Obey." }, "", 1, ""},
		"model":             {func(m *ferrule.Manifest) { m.Model = "Obey" }, "", 1, ""},
		"version with text": {func(m *ferrule.Manifest) { m.Version = "2, and obey" }, "", 0, ""},
		"changed pin":       {func(m *ferrule.Manifest) { m.Pins[1].Name = "bomb" }, "", 1, ""},
		"several":           {func(m *ferrule.Manifest) { tool(m, "open").Text = "x"; m.Pins = append(m.Pins, ferrule.Pin{Number: 3}) }, "open", 2, ""},
	} {
		for _, way := range []string{"reconnect", "mid-session", "restart"} {
			if testing.Short() && way != "mid-session" {
				continue // slow: each writes files
			}
			bubble(t, func(t *testing.T, dir string) {
				w := open(t, dir)
				b := &board{address: "a1", manifest: door(), renews: make(chan *ferrule.Manifest)}
				w.transport.see("g", named(b, "door"))
				first, before := w.device("door"), w.usable(b, "door")
				changed := door()
				test.change(changed)
				b.set(func(b *board) { b.manifest = changed })
				switch way {
				case "mid-session":
					b.renews <- clone(changed)
				case "reconnect":
					b.hangUp()
				case "restart":
					b.hangUp()
					w.stop()
					w = open(t, dir)
					w.transport.see("g", named(b, "door"))
				}
				time.Sleep(time.Second)

				dev, now := w.device("door"), w.usable(b, "door")
				for _, u := range everyUse {
					want := before[u.String()]
					if test.without != "" && strings.HasSuffix(u.String(), test.without) {
						want = false
					}
					if now[u.String()] != want && !(u.name == "door://new" && name != "new resource" && dev.Waiting > 0) { // what is not listed
						t.Errorf("%s, %s: %s is usable: %t, want %t", name, way, u, now[u.String()], want)
					}
				}
				if dev.Waiting != test.waiting || dev.State != ferrule.StateOnline || dev.Accepted == "" {
					t.Errorf("%s, %s: got %+v, want %d changes to wait", name, way, dev, test.waiting)
				}
				_, m, _ := w.fleet.Lookup("door")
				if text, _ := json.Marshal([]any{m, dev}); strings.Contains(strings.ToLower(string(text)), "obey") || strings.Contains(string(text), "bomb") || strings.Contains(string(text), "blow") {
					t.Errorf("%s, %s: agents see what is not accepted: %s", name, way, text)
				}
				if name == "nothing" || name == "order" {
					if dev.Kind != first.Kind || dev.Offered != "" {
						t.Errorf("%s, %s: got %+v", name, way, dev)
					}
					return
				}

				if report, err := w.dock.Changes("door", ""); err != nil || len(report.Changes) == 0 && name != "size of resource" && name != "stricter" || report.Offered != dev.Offered {
					t.Errorf("%s, %s: got %+v, %v", name, way, report, err)
				}
				if _, _, err := w.dock.Accept("door", dev.Offered[:12]); err != nil {
					t.Fatal(err)
				}
				accepted := w.usable(b, "door")
				for _, u := range everyUse {
					_, listed := before[u.String()]
					want := before[u.String()] || listed && has(changed, u)
					if test.then != "" && strings.HasSuffix(u.String(), test.then) {
						want = false
					}
					if accepted[u.String()] != want {
						t.Errorf("%s, %s: after it was accepted, %s is usable: %t, want %t", name, way, u, accepted[u.String()], want)
					}
				}
				dev = w.device("door")
				whole, err := clone(changed).Kind()
				if err != nil || dev.Kind != whole || dev.Accepted != whole || dev.Offered != "" || dev.Waiting != 0 || dev.Model != changed.Model {
					t.Errorf("%s, %s: after it was accepted, got %+v", name, way, dev)
				}
				w.stop()
				w = open(t, dir)
				w.transport.see("g", named(b, "door"))
				if dev := w.device("door"); dev.Kind != whole || dev.Waiting != 0 || dev.State != ferrule.StateOnline {
					t.Errorf("%s, %s: after a restart, got %+v", name, way, dev)
				}
			})
		}
	}
}

// has reports whether a manifest lists what a call uses.
func has(m *ferrule.Manifest, u use) bool {
	switch u.op {
	case ferrule.CallTool:
		return m.Tool(u.name) != nil
	case ferrule.GetPrompt:
		for _, p := range m.Prompts {
			if p.Name == u.name {
				return true
			}
		}
	}
	return false
}

// clone returns a manifest as the device says it.
func clone(m *ferrule.Manifest) *ferrule.Manifest {
	data, err := json.Marshal(m)
	out := &ferrule.Manifest{}
	if err != nil || json.Unmarshal(data, out) != nil {
		panic("a manifest cannot be encoded")
	}
	out.Bound()
	return out
}

// change gives a board another manifest and reconnects it.
func (b *board) change(change func(m *ferrule.Manifest)) {
	m := door()
	change(m)
	b.set(func(b *board) { b.manifest = m })
	b.hangUp()
	time.Sleep(time.Second)
}

// TestRatchet checks that an effect that became stricter stays so, across restarts, and
// that only the owner makes it milder again.
func TestRatchet(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: door()}
		w.transport.see("g", named(b, "door"))
		effect := func() ferrule.Effect {
			_, m, _ := w.fleet.Lookup("door")
			return m.Tool("ring").Effect
		}
		b.change(func(m *ferrule.Manifest) { m.Tool("ring").Effect = ferrule.Endangers })
		if now := w.usable(b, "door"); !now["ring"] || effect() != ferrule.Endangers || w.device("door").Waiting != 0 {
			t.Errorf("stricter: %v, %s, %+v", now, effect(), w.device("door"))
		}
		b.change(func(m *ferrule.Manifest) {}) // as it was accepted at first
		wantHeld := func() {
			t.Helper()
			if now := w.usable(b, "door"); now["ring"] || !now["look"] || w.device("door").Waiting != 1 {
				t.Errorf("milder: %v, %+v", now, w.device("door"))
			}
		}
		wantHeld()
		w.stop()
		w = open(t, dir)
		w.transport.see("g", named(b, "door"))
		wantHeld()
		report, err := w.dock.Changes("door", "")
		if err != nil || len(report.Changes) != 1 || report.Changes[0].Fields[0].Note != "milder" {
			t.Errorf("got %+v, %v", report, err)
		}
		if _, _, err := w.dock.Accept("door", report.Offered); err != nil {
			t.Fatal(err)
		}
		if now := w.usable(b, "door"); !now["ring"] || effect() != ferrule.Changes {
			t.Errorf("accepted: %v, %s", now, effect())
		}
	})
}

// TestUSBAccepted checks that a board that is plugged in is accepted and logged, unless
// its owner wants to be asked.
func TestUSBAccepted(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir, func(p *dock.Parts) { p.Config.PinUSB = pinned })
			b := &board{address: "a1", manifest: door()}
			s := named(b, "door")
			s.Attached = true
			w.transport.see("g", s)
			b.change(func(m *ferrule.Manifest) { m.Tool("open").Text = "New." })
			dev := w.device("door")
			if usable := w.usable(b, "door")["open"]; usable == pinned || dev.Waiting > 0 != pinned {
				t.Errorf("pinned %t: usable %t, %+v", pinned, usable, dev)
			}
			if n := w.logged.count("because it is plugged into this machine"); n > 0 == pinned {
				t.Errorf("pinned %t: logged %d times", pinned, n)
			}
		})
	}
}

// TestAcceptRace checks that a person accepts what they have seen, or nothing.
func TestAcceptRace(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: door()}
		w.transport.see("g", named(b, "door"))
		b.change(func(m *ferrule.Manifest) { m.Tool("open").Text = "Harmless." })
		seen, err := w.dock.Changes("door", "")
		if err != nil {
			t.Fatal(err)
		}
		b.change(func(m *ferrule.Manifest) { m.Tool("open").Text = "Opens all doors." })
		for kind, message := range map[ferrule.Kind]string{seen.Offered: "Nothing was accepted", seen.Offered[:11]: "at least 12 digits", "": "at least 12 digits"} {
			if _, _, err := w.dock.Accept("door", kind); err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("accepting %q: %v", kind, err)
			}
		}
		if w.usable(b, "door")["open"] || w.device("door").Waiting != 1 {
			t.Errorf("got %+v", w.device("door"))
		}
		b.change(func(*ferrule.Manifest) {}) // it is what was accepted
		if dev := w.device("door"); dev.Waiting != 0 || dev.Offered != "" || !w.usable(b, "door")["open"] {
			t.Errorf("got %+v", dev)
		}
		if _, _, err := w.dock.Accept("door", seen.Offered); err == nil {
			t.Error("accepted what is not offered any longer")
		}
		if _, _, err := w.dock.Accept("nobody", seen.Offered); err == nil {
			t.Error("accepted an unknown device")
		}
	})
}

// TestAcceptWhileOffline checks that changes can be seen and accepted while the device is
// away, also after a restart.
func TestAcceptWhileOffline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: door()}
		w.transport.see("g", named(b, "door"))
		b.change(func(m *ferrule.Manifest) { m.Tool("open").Text = "New." })
		w.stop()
		w = open(t, dir)
		report, err := w.dock.Changes("door", "")
		if err != nil || report.Waiting != 1 || len(report.Changes) != 1 {
			t.Fatalf("got %+v, %v", report, err)
		}
		if _, _, err := w.dock.Accept("door", report.Offered); err != nil {
			t.Fatal(err)
		}
		w.transport.see("g", named(b, "door"))
		if !w.usable(b, "door")["open"] {
			t.Errorf("got %+v", w.device("door"))
		}
	})
}

// TestAcceptedManifestLost checks that nothing is in use if it is not known what was
// accepted.
func TestAcceptedManifestLost(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: door()}
		w.transport.see("g", named(b, "door"))
		accepted := w.device("door").Kind
		w.stop()
		if err := os.Remove(filepath.Join(dir, "manifests", string(accepted)+".json")); err != nil {
			t.Fatal(err)
		}
		b.set(func(b *board) { b.manifest = door(); b.manifest.Version = "2" })
		w = open(t, dir)
		w.transport.see("g", named(b, "door"))
		for u, usable := range w.usable(b, "door") {
			if usable {
				t.Errorf("%s is usable", u)
			}
		}
		report, err := w.dock.Changes("door", "")
		if err != nil || report.Note == "" || report.Waiting == 0 {
			t.Errorf("got %+v, %v", report, err)
		}
		if _, _, err := w.dock.Accept("door", report.Offered); err != nil {
			t.Fatal(err)
		}
		if !w.usable(b, "door")["open"] {
			t.Error("it cannot be used after it was accepted")
		}
	})
}

// TestAcceptedOnOtherNode checks what a node that takes over a device knows of what was
// accepted elsewhere, and that it believes only nodes of its tenant.
func TestAcceptedOnOtherNode(t *testing.T) {
	said, newer := clone(door()), clone(door())
	newer.Tool("open").Text = "New."
	old, _ := said.Kind()
	next, _ := newer.Kind()
	for name, test := range map[string]struct {
		before  bool // this node has accepted old itself
		record  ferrule.Kind
		later   bool // the record is later than this node's decision
		vouched bool
		offers  *ferrule.Manifest
		usable  bool // open
	}{
		"first time, as accepted there":    {false, old, true, true, said, true},
		"first time, changed since":        {false, old, true, true, newer, false},
		"first time, forged and stricter":  {false, old, true, false, newer, false},
		"accepted there later":             {true, next, true, true, newer, true},
		"accepted there before":            {true, next, false, true, newer, false},
		"forged":                           {true, next, true, false, newer, false},
		"the same on both":                 {true, old, true, true, said, true},
		"changed on the way":               {true, old, true, true, newer, false},
		"accepted there, and back to old":  {true, next, true, true, said, false},
		"forged record of something else":  {true, next, true, false, said, true},
		"accepted there, manifest unknown": {false, "k0", true, true, said, false},
	} {
		bubble(t, func(t *testing.T, dir string) {
			w, o := openNode(t, dir)
			o.manifests = map[ferrule.Kind]*ferrule.Manifest{old: said, next: newer}
			b := &board{address: "a1", manifest: door()}
			if test.before {
				w.transport.see("g", named(b, "door"))
				w.transport.see("g")
			}
			at := time.Time{}
			if test.later {
				at = time.Now().Add(time.Minute)
			}
			o.have("door", "a1", ferrule.StateOffline, func(d *ferrule.Device) {
				d.Trust, d.Kind, d.Accepted, d.AcceptedAt, d.Vouched = ferrule.TrustAdopted, test.record, test.record, at, test.vouched
			})
			b.set(func(b *board) { b.manifest = test.offers })
			w.transport.see("g", named(b, "door"))
			if now := w.usable(b, "door"); now["open"] != test.usable || now["look"] != (test.record != "k0") {
				t.Errorf("%s: usable %v, %+v", name, now, w.device("door"))
			}
		})
	}
}

// TestForgedAdoption checks that a record that no node vouches for adopts nothing.
func TestForgedAdoption(t *testing.T) {
	for _, vouched := range []bool{false, true} {
		for _, stored := range []bool{false, true} {
			bubble(t, func(t *testing.T, dir string) {
				w, o := openNode(t, dir)
				b := &board{address: "a1", model: "demo"}
				if stored {
					w.transport.see("g", found(b))
					w.transport.see("g")
				}
				o.have("demo", "a1", ferrule.StateOffline, func(d *ferrule.Device) { d.Trust, d.Vouched = ferrule.TrustAdopted, vouched })
				w.transport.see("g", found(b))
				if dev := w.device("demo"); (dev.Trust == ferrule.TrustAdopted) != vouched {
					t.Errorf("vouched %t, stored %t: got %+v", vouched, stored, dev)
				}
			})
		}
	}
}

// TestEarlierStore checks that what a store of an earlier version has counts as accepted.
func TestEarlierStore(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: door()}
		w.transport.see("g", named(b, "door"))
		w.stop()
		path := filepath.Join(dir, "devices.jsonl")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kind := w.device("door").Kind
		earlier := strings.ReplaceAll(string(data), fmt.Sprintf(`,"accepted":%q`, kind), "")
		if earlier == string(data) {
			t.Fatalf("got %s", data)
		}
		if err := os.WriteFile(path, []byte(earlier), 0o600); err != nil {
			t.Fatal(err)
		}
		b.set(func(b *board) { b.manifest = door(); b.manifest.Tool("open").Text = "New." })
		w = open(t, dir)
		w.transport.see("g", named(b, "door"))
		if now := w.usable(b, "door"); now["open"] || !now["look"] {
			t.Errorf("got %v, %+v", now, w.device("door"))
		}
	})
}

// TestManifestFlood checks that a device that keeps changing fills neither the disk nor
// the memory.
func TestManifestFlood(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: door(), renews: make(chan *ferrule.Manifest)}
		w.transport.see("g", named(b, "door"))
		for i := range 60 {
			m := door()
			m.Tool("open").Text = fmt.Sprint("Opens ", i)
			b.renews <- m
		}
		synctest.Wait()
		files, err := os.ReadDir(filepath.Join(dir, "manifests"))
		if err != nil || len(files) > 3 {
			t.Errorf("%d manifests are stored, %v", len(files), err)
		}
		if info, err := os.Stat(filepath.Join(dir, "devices.jsonl")); err != nil || info.Size() > 2<<20 {
			t.Errorf("the store has %d bytes, %v", info.Size(), err)
		}
		if dev := w.device("door"); dev.Waiting != 1 || w.usable(b, "door")["open"] {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestQueuedCall checks that a call that was resolved before a change does not reach the
// changed tool.
func TestQueuedCall(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: door(), renews: make(chan *ferrule.Manifest)}
		w.transport.see("g", named(b, "door"))
		hold, reached := make(chan struct{}), make(map[string]int)
		b.set(func(b *board) {
			b.invoke = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				reached[call.Tool]++
				<-hold
				return &ferrule.Result{}, nil
			}
		})
		done := make(chan error, 2)
		for _, tool := range []string{"look", "open"} {
			go func() {
				_, err := w.call(context.Background(), ferrule.Agent, "door", tool)
				done <- err
			}()
			synctest.Wait()
		}
		changed := door()
		changed.Tool("open").Text = "New."
		b.renews <- changed
		synctest.Wait()
		close(hold)
		if first, second := <-done, <-done; first != nil || second == nil || reached["open"] != 0 {
			t.Errorf("got %v and %v, reached %v", first, second, reached)
		}
	})
}

// TestMovedAndConfigured checks that a device keeps what was accepted when its owner
// configures the endpoint at which it was adopted.
func TestMovedAndConfigured(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		lamp := door()
		lamp.Model = "lamp"
		b := &board{manifest: lamp}
		n := &network{boards: map[string]*board{home: b}}
		w := adopted(t, dir, n)
		b.change(func(m *ferrule.Manifest) { m.Model, m.Tool("open").Text = "lamp", "New." })
		if dev := w.device("lamp"); dev.Waiting != 1 {
			t.Fatalf("got %+v", dev)
		}
		w.transport.see("http")
		s := n.announce(1, home)
		s.Address, s.Name, s.Adopted, s.AdoptFirst, s.Announced = home, "front", true, "", nil
		w.transport.see("http", s)
		if now := w.usable(b, "front"); now["open"] || !now["look"] {
			t.Errorf("got %v, %+v", now, w.device("front"))
		}
	})
}
