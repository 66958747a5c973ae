package poller_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
)

// grammar has one probe of its own for each pin.
func grammar(laid *ferrule.Manifest) (all []ferrule.Poll) {
	for _, pin := range laid.Pins {
		all = append(all, ferrule.Poll{
			Name: pin.Name, Tool: "sample", Args: fmt.Appendf(nil, `{"pin":%d}`, pin.Number), Every: new(ferrule.Duration(2 * time.Second)),
			Parse: func(json.RawMessage) ([]ferrule.Measurement, error) {
				return []ferrule.Measurement{{Signal: pin.Name, Unit: "mV", Values: []float64{5}}}, nil
			},
		})
	}
	return all
}

func probe(name, tool, args string, every time.Duration, unit string) ferrule.Poll {
	p := ferrule.Poll{Name: name, Tool: tool, Args: json.RawMessage(args), Unit: unit}
	if args == "" {
		p.Args = nil
	}
	if every >= 0 {
		p.Every = new(ferrule.Duration(every))
	}
	return p
}

// TestProbes: what is asked for is what the grammar says, and the tools that want to be
// polled, as overlays change them.
func TestProbes(t *testing.T) {
	const unsaid = -1
	manifest := func() *ferrule.Manifest {
		return &ferrule.Manifest{
			Pins: []ferrule.Pin{{Number: 7, Name: "light"}},
			Tools: []ferrule.Tool{
				{Name: "sample", Effect: ferrule.Reads},
				{Name: "air.quality", Effect: ferrule.Changes, Poll: ferrule.Duration(4 * time.Second)},
				{Name: "light", Effect: ferrule.Reads, Poll: ferrule.Duration(4 * time.Second)},
				{Name: "look", Effect: ferrule.Reads},
				{Name: "burn", Effect: ferrule.Endangers, Poll: ferrule.Duration(time.Second)},
				{Name: "secret", Effect: ferrule.Reads, UserOnly: true, Poll: ferrule.Duration(time.Second)},
				{Name: "broken", Effect: ferrule.Reads, Quarantine: "listed twice", Poll: ferrule.Duration(time.Second)},
			},
		}
	}
	usual := []string{
		"air.quality  each 4s: air_quality_co2 2 , air_quality_pm 1 ",
		"light  each 4s: light_2_co2 2 , light_2_pm 1 ",
		`sample {"pin":7} each 2s: light 5 mV`,
	}
	for name, test := range map[string]struct {
		said []ferrule.Poll
		want []string
		note string // what is said about it
	}{
		"as it says": {nil, usual, `its probe burn asks the tool "burn", which endangers, and is never called by itself`},
		"one is switched off": {
			[]ferrule.Poll{probe("air_quality", "", "", 0, "")}, usual[1:], "",
		},
		"a pin is switched off": {
			[]ferrule.Poll{probe("light", "", "", 0, "")}, usual[:2], "",
		},
		"how often, and in what unit": {
			[]ferrule.Poll{probe("light", "", "", 8*time.Second, "V"), probe("air_quality", "", "", 10*time.Second, "ppm")},
			[]string{
				"air.quality  each 10s: air_quality_co2 2 ppm, air_quality_pm 1 ppm",
				usual[1],
				`sample {"pin":7} each 8s: light 5 V`,
			}, "",
		},
		"with other arguments": {
			[]ferrule.Poll{probe("light", "", `{"pin":8}`, unsaid, "")},
			[]string{usual[0], usual[1], `sample {"pin":8} each 2s: light 5 mV`}, "",
		},
		"with another tool, whose answers are read as they are": {
			[]ferrule.Poll{probe("light", "look", `{}`, unsaid, "")},
			[]string{usual[0], usual[1], `look {} each 2s: light_co2 2 , light_pm 1 `}, "",
		},
		"one more": {
			[]ferrule.Poll{probe("view", "look", `{"far":true}`, 3*time.Second, "m")},
			[]string{usual[0], usual[1], usual[2], `look {"far":true} each 3s: view_co2 2 m, view_pm 1 m`}, "",
		},
		"one more, and nobody says how often": {
			[]ferrule.Poll{probe("view", "look", "", unsaid, "")},
			[]string{usual[0], usual[1], usual[2], `look  each 10s: view_co2 2 , view_pm 1 `}, "",
		},
		"one that is not there": {
			[]ferrule.Poll{probe("ligth", "", "", time.Second, "")}, usual,
			"an overlay speaks of a probe ligth, which it does not have, and names no tool for it",
		},
		"a tool that is not there": {
			[]ferrule.Poll{probe("view", "loook", "", time.Second, "")}, usual,
			`its probe view asks the tool "loook", which it does not have`,
		},
		"a tool that is for people": {
			[]ferrule.Poll{probe("view", "secret", "", time.Second, "")}, usual,
			`its probe view asks the tool "secret", which is for people only`,
		},
		"a tool in quarantine": {
			[]ferrule.Poll{probe("view", "broken", "", time.Second, "")}, usual,
			`its probe view asks the tool "broken", which cannot be used: listed twice`,
		},
		"a tool that endangers": {
			[]ferrule.Poll{probe("view", "burn", "", time.Second, "")}, usual,
			`its probe view asks the tool "burn", which endangers, and is never called by itself`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				args := make(map[string]string)
				w := open(t, func(p *poller.Parts) {
					p.Grammars = map[string]func(*ferrule.Manifest) []ferrule.Poll{"d": grammar}
					p.Log = slog.New(slog.NewTextHandler(&log, nil))
				})
				w.answer = func(call *ferrule.Call) (string, error) {
					w.set(func() { args[call.Tool] = string(call.Args) })
					return `{"co2":2,"pm":1,"name":"x"}`, nil
				}
				laid := manifest()
				laid.Polls = test.said
				w.Put(online("robot"), laid)
				w.Put(online("other"), laid)  // of which nothing is said again
				time.Sleep(600 * time.Second) // for the mean to be near
				var got []string
				for _, tool := range []string{"air.quality", "light", "look", "sample", "burn", "secret", "broken"} {
					times := w.times("robot " + tool)
					if len(times) == 0 {
						continue
					}
					every := (times[len(times)-1] - times[0]) / time.Duration(len(times)-1)
					got = append(got, fmt.Sprintf("%s %s each %v: %s", tool, args[tool], every.Round(500*time.Millisecond), w.latest("robot", tool)))
				}
				want := append([]string(nil), test.want...)
				sortLikeTools(want)
				if strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				note := strings.ReplaceAll(test.note, `"`, `\"`)
				if n := strings.Count(log.String(), note); test.note != "" && n != 1 {
					t.Errorf("said %d times: %s\n%s", n, test.note, log.String())
				}
				if n := strings.Count(log.String(), "\n"); test.note == "" && n != 3 { // burn, secret and broken
					t.Errorf("said %s", log.String())
				}
			})
		})
	}
}

// sortLikeTools puts lines in the order in which the test looks.
func sortLikeTools(lines []string) {
	order := "air.quality light look sample"
	for i := range lines {
		for j := i + 1; j < len(lines); j++ {
			a, _, _ := strings.Cut(lines[i], " ")
			b, _, _ := strings.Cut(lines[j], " ")
			if strings.Index(order, a) > strings.Index(order, b) {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
}

// latest is what asking a tool brought last: its signals, values and units.
func (w *world) latest(device, tool string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, s := range w.brought[device+" "+tool].Batches {
		all = append(all, fmt.Sprintf("%s %v %s", s.Signal, s.Samples[0].Value, s.Unit))
	}
	return strings.Join(all, ", ")
}

// TestSameNames: however a device calls its tools, each probe has a name.
func TestSameNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		laid := &ferrule.Manifest{}
		for i := range 200 {
			laid.Tools = append(laid.Tools, ferrule.Tool{Name: "look" + strings.Repeat(".", i+1), Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		}
		w.Put(online("robot"), laid)
		time.Sleep(10 * time.Second)
		_, _, readings := w.seen()
		names := make(map[string]bool)
		for _, r := range readings {
			names[r.Poll] = true
		}
		if len(names) != 200 || !names["look_"] || !names["look__2"] {
			t.Errorf("%d names", len(names))
		}
	})
}

// TestTooMany: a device that wants to be asked for ever more is asked for some of it.
func TestTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		laid := &ferrule.Manifest{}
		for i := range 1000 {
			laid.Tools = append(laid.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(4 * time.Second)})
		}
		n := 0
		w.answer = func(*ferrule.Call) (string, error) { // members with ever new names
			n++
			var members []string
			for i := range 100 {
				members = append(members, fmt.Sprintf(`"m%d":1`, n*1000+i))
			}
			return "{" + strings.Join(members, ",") + "}", nil
		}
		w.Put(online("robot"), laid)
		time.Sleep(9 * time.Second)
		asked, _, readings := w.seen()
		signals := make(map[string]bool)
		for _, r := range readings {
			for _, s := range r.Batches {
				signals[s.Signal] = true
			}
		}
		if asked != 256 || w.Stats().Probes != 256 || len(signals) != 256 {
			t.Errorf("asked for %d things, got %d signals", asked, len(signals))
		}
	})
}

// TestWhoseSignal: two probes do not bring one signal.
func TestWhoseSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		laid := &ferrule.Manifest{Tools: []ferrule.Tool{
			{Name: "bed", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
			{Name: "bed_heat", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
			{Name: "bed heat", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
			{Name: "温度", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
		}}
		w.answer = func(call *ferrule.Call) (string, error) {
			switch call.Tool {
			case "bed":
				return `{"heat":1,"level":2}`, nil // the first of which is bed_heat's name
			case "bed_heat":
				return `3`, nil
			}
			return `4`, nil
		}
		w.Put(online("robot"), laid)
		time.Sleep(10 * time.Second)
		for signal, want := range map[string]float64{"bed_level": 2, "bed_heat": 3, "bed_heat_2": 4, "tool": 4} {
			samples, _ := w.told("robot", signal)
			if len(samples) < 8 {
				t.Errorf("%d samples of %s", len(samples), signal)
			}
			for _, s := range samples {
				if s.Value != want {
					t.Errorf("%s is %v", signal, s.Value)
				}
			}
		}
	})
}

// TestRefused: what a board says that it does not have is not asked for any more; its
// latest sample is, if it has that. It is believed when it has said so twice.
func TestRefused(t *testing.T) {
	sampled := &ferrule.Manifest{
		Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}, {Name: "get_pin_summary", Effect: ferrule.Reads}},
		Pins: []ferrule.Pin{{
			Number: 34, Name: "light", Abilities: []string{"buffer", "summary"},
			Sampling: &ferrule.Sampling{Interval: ferrule.Duration(time.Second), Size: 20},
		}},
	}
	alone := *sampled
	alone.Pins = []ferrule.Pin{sampled.Pins[0]}
	alone.Pins[0].Abilities = []string{"buffer"}
	secret := *sampled
	secret.Tools = []ferrule.Tool{sampled.Tools[0], {Name: "get_pin_summary", Effect: ferrule.Reads, UserOnly: true}}
	slower := *sampled
	slower.Polls = []ferrule.Poll{probe("light", "", "", 5*time.Second, "lx")}
	for name, test := range map[string]struct {
		laid             *ferrule.Manifest
		error            bool // it refuses, in place of an answer that says so
		buffers, samples int  // how often it is asked for the buffer, and what came of it all
	}{
		"by an answer":              {sampled, false, 2, 570},
		"by an error":               {sampled, true, 2, 570},
		"without a summary":         {&alone, false, 2, 0},
		"a summary for people only": {&secret, false, 2, 0},
		"as its owner says":         {&slower, false, 2, 117},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, func(p *poller.Parts) {
					p.Grammars = map[string]func(*ferrule.Manifest) []ferrule.Poll{"d": mcpu.Polls}
				})
				w.answer = func(call *ferrule.Call) (string, error) {
					switch {
					case call.Tool == "get_pin_summary":
						return `{"pin":34,"name":"light","latest":7,"samples":3}`, nil
					case test.error:
						return "", ferrule.Errorf(ferrule.Refused, "Pin not found")
					}
					return `{"pin":"light","buffer_available":false,"reason":"no room"}`, nil
				}
				w.Put(online("robot"), test.laid)
				time.Sleep(10 * time.Minute)
				w.Put(in(ferrule.StateOffline, "robot"), test.laid)
				w.Put(online("robot"), test.laid) // which changes nothing about it
				if n := len(w.times("robot get_pin_buffer")); n != test.buffers {
					t.Errorf("asked for the buffer %d times", n)
				}
				samples, _ := w.told("robot", "light")
				if n := len(samples); n < test.samples*9/10 || n > test.samples*11/10 {
					t.Errorf("%d samples", n)
				}
				for _, s := range samples { // it was taken within the second before, which may be a tenth longer
					if s.Value != 7 || s.Within != ferrule.Duration(556*time.Millisecond) {
						t.Errorf("%+v", s)
					}
				}
				if test.samples == 0 && w.Stats().Probes != 0 {
					t.Errorf("counted %+v", w.Stats())
				}
				w.forget()
				other := *test.laid
				dev := online("robot")
				dev.Kind = "k2"
				w.Put(dev, &other)
				time.Sleep(time.Minute)
				if n := len(w.times("robot get_pin_buffer")); n != 2 {
					t.Errorf("another firmware was asked for the buffer %d times", n)
				}
			})
		})
	}
}

// TestRefusedNowAndThen: noise may look like a refusal, and it is not believed unless it comes
// again at once.
func TestRefusedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, withMCPU)
		n := 0
		w.answer = func(*ferrule.Call) (string, error) {
			if n++; n%2 == 1 {
				return "", ferrule.Errorf(ferrule.Refused, "Parse error")
			}
			return "", ferrule.Errorf(ferrule.Unanswered, "silence")
		}
		w.Put(online("robot"), stated())
		time.Sleep(20 * time.Minute)
		if n := len(w.times("robot get_pin_events")); n < 10 {
			t.Errorf("asked %d times", n)
		}
	})
}
