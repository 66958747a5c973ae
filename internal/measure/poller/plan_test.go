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

// protocolPolls returns one poll per pin.
func protocolPolls(manifest *ferrule.Manifest) (all []ferrule.Poll) {
	for _, pin := range manifest.Pins {
		all = append(all, ferrule.Poll{
			Name: pin.Name, Tool: "sample", Args: fmt.Appendf(nil, `{"pin":%d}`, pin.Number), Every: new(ferrule.Duration(2 * time.Second)),
			Parse: func(json.RawMessage) ([]ferrule.Measurement, error) {
				return []ferrule.Measurement{{Signal: pin.Name, Unit: "mV", Values: []float64{5}}}, nil
			},
		})
	}
	return all
}

func poll(name, tool, args string, every time.Duration, unit string) ferrule.Poll {
	p := ferrule.Poll{Name: name, Tool: tool, Args: json.RawMessage(args), Unit: unit}
	if args == "" {
		p.Args = nil
	}
	if every >= 0 {
		p.Every = new(ferrule.Duration(every))
	}
	return p
}

// TestPolls checks that the plan combines the polls of the protocol, the polled tools and
// the changes of overlays.
func TestPolls(t *testing.T) {
	const unset = -1
	newManifest := func() *ferrule.Manifest {
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
	defaults := []string{
		"air.quality  each 4s: air_quality_co2 2 , air_quality_pm 1 ",
		"light  each 4s: light_2_co2 2 , light_2_pm 1 ",
		`sample {"pin":7} each 2s: light 5 mV`,
	}
	for name, test := range map[string]struct {
		overlay []ferrule.Poll
		want    []string
		note    string // in the log
	}{
		"no overlay": {nil, defaults, `poll burn ignored: tool "burn" can endanger, so the gateway does not call it on its own`},
		"tool disabled": {
			[]ferrule.Poll{poll("air_quality", "", "", 0, "")}, defaults[1:], "",
		},
		"pin disabled": {
			[]ferrule.Poll{poll("light", "", "", 0, "")}, defaults[:2], "",
		},
		"interval and unit": {
			[]ferrule.Poll{poll("light", "", "", 8*time.Second, "V"), poll("air_quality", "", "", 10*time.Second, "ppm")},
			[]string{
				"air.quality  each 10s: air_quality_co2 2 ppm, air_quality_pm 1 ppm",
				defaults[1],
				`sample {"pin":7} each 8s: light 5 V`,
			}, "",
		},
		"arguments": {
			[]ferrule.Poll{poll("light", "", `{"pin":8}`, unset, "")},
			[]string{defaults[0], defaults[1], `sample {"pin":8} each 2s: light 5 mV`}, "",
		},
		"another tool drops the parser": {
			[]ferrule.Poll{poll("light", "look", `{}`, unset, "")},
			[]string{defaults[0], defaults[1], `look {} each 2s: light_co2 2 , light_pm 1 `}, "",
		},
		"new poll": {
			[]ferrule.Poll{poll("view", "look", `{"far":true}`, 3*time.Second, "m")},
			[]string{defaults[0], defaults[1], defaults[2], `look {"far":true} each 3s: view_co2 2 m, view_pm 1 m`}, "",
		},
		"new poll with the default interval": {
			[]ferrule.Poll{poll("view", "look", "", unset, "")},
			[]string{defaults[0], defaults[1], defaults[2], `look  each 10s: view_co2 2 , view_pm 1 `}, "",
		},
		"change of an unknown poll": {
			[]ferrule.Poll{poll("ligth", "", "", time.Second, "")}, defaults,
			"poll ligth of an overlay ignored: no poll has that name, and it names no tool",
		},
		"unknown tool": {
			[]ferrule.Poll{poll("view", "loook", "", time.Second, "")}, defaults,
			`poll view ignored: tool "loook" does not exist`,
		},
		"tool for people only": {
			[]ferrule.Poll{poll("view", "secret", "", time.Second, "")}, defaults,
			`poll view ignored: tool "secret" is for people only`,
		},
		"quarantined tool": {
			[]ferrule.Poll{poll("view", "broken", "", time.Second, "")}, defaults,
			`poll view ignored: tool "broken" is quarantined: listed twice`,
		},
		"dangerous tool": {
			[]ferrule.Poll{poll("view", "burn", "", time.Second, "")}, defaults,
			`poll view ignored: tool "burn" can endanger, so the gateway does not call it on its own`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				args := make(map[string]string)
				w := open(t, func(p *poller.Parts) {
					p.Polls = map[string]func(*ferrule.Manifest) []ferrule.Poll{"d": protocolPolls}
					p.Log = slog.New(slog.NewTextHandler(&log, nil))
				})
				w.answer = func(call *ferrule.Call) (string, error) {
					w.set(func() { args[call.Tool] = string(call.Args) })
					return `{"co2":2,"pm":1,"name":"x"}`, nil
				}
				manifest := newManifest()
				manifest.Polls = test.overlay
				w.Put(online("robot"), manifest)
				w.Put(online("other"), manifest) // shares the plan, so nothing is logged twice
				time.Sleep(600 * time.Second)    // long enough for the mean interval
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
					t.Errorf("logged %d times, want once: %s\n%s", n, test.note, log.String())
				}
				if n := strings.Count(log.String(), "\n"); test.note == "" && n != 3 { // burn, secret and broken
					t.Errorf("unexpected log: %s", log.String())
				}
			})
		})
	}
}

// sortLikeTools sorts lines in the order in which the test reads the tools.
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

// latest returns the last reading of a tool: its signals, values and units.
func (w *fixture) latest(device, tool string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, s := range w.results[device+" "+tool].Batches {
		all = append(all, fmt.Sprintf("%s %v %s", s.Signal, s.Samples[0].Value, s.Unit))
	}
	return strings.Join(all, ", ")
}

// TestUniqueNames checks that each poll has a name of its own, whatever the names of tools.
func TestUniqueNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		manifest := &ferrule.Manifest{}
		for i := range 200 {
			manifest.Tools = append(manifest.Tools, ferrule.Tool{Name: "look" + strings.Repeat(".", i+1), Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		}
		w.Put(online("robot"), manifest)
		time.Sleep(10 * time.Second)
		_, _, readings := w.seen()
		names := make(map[string]bool)
		for _, r := range readings {
			names[r.Poll] = true
		}
		if len(names) != 200 || !names["look_"] || !names["look__2"] {
			t.Errorf("%d names, want 200", len(names))
		}
	})
}

// TestPollLimit checks the limits of polls and signals per device.
func TestPollLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		manifest := &ferrule.Manifest{}
		for i := range 1000 {
			manifest.Tools = append(manifest.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(4 * time.Second)})
		}
		n := 0
		w.answer = func(*ferrule.Call) (string, error) { // each answer has new member names
			n++
			var members []string
			for i := range 100 {
				members = append(members, fmt.Sprintf(`"m%d":1`, n*1000+i))
			}
			return "{" + strings.Join(members, ",") + "}", nil
		}
		w.Put(online("robot"), manifest)
		time.Sleep(9 * time.Second)
		calls, _, readings := w.seen()
		signals := make(map[string]bool)
		for _, r := range readings {
			for _, s := range r.Batches {
				signals[s.Signal] = true
			}
		}
		if calls != 256 || w.Stats().Polls != 256 || len(signals) != 256 {
			t.Errorf("%d polls, %d signals, want 256 of each", calls, len(signals))
		}
	})
}

// TestSignalOwner checks that two polls do not write to the same signal.
func TestSignalOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		manifest := &ferrule.Manifest{Tools: []ferrule.Tool{
			{Name: "bed", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
			{Name: "bed_heat", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
			{Name: "bed heat", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
			{Name: "温度", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)},
		}}
		w.answer = func(call *ferrule.Call) (string, error) {
			switch call.Tool {
			case "bed":
				return `{"heat":1,"level":2}`, nil // bed_heat is another poll's name
			case "bed_heat":
				return `3`, nil
			}
			return `4`, nil
		}
		w.Put(online("robot"), manifest)
		time.Sleep(10 * time.Second)
		for signal, want := range map[string]float64{"bed_level": 2, "bed_heat": 3, "bed_heat_2": 4, "tool": 4} {
			samples, _ := w.recorded("robot", signal)
			if len(samples) < 8 {
				t.Errorf("%d samples of %s", len(samples), signal)
			}
			for _, s := range samples {
				if s.Value != want {
					t.Errorf("%s is %v, want %v", signal, s.Value, want)
				}
			}
		}
	})
}

// TestRefusal checks that a poll that the device refuses twice in a row switches to its
// fallback, or ends if it has none.
func TestRefusal(t *testing.T) {
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
	slower.Polls = []ferrule.Poll{poll("light", "", "", 5*time.Second, "lx")}
	for name, test := range map[string]struct {
		manifest         *ferrule.Manifest
		error            bool // refuse by an error, not by an answer
		buffers, samples int  // reads of the buffer, and samples in all
	}{
		"by an answer":             {sampled, false, 2, 570},
		"by an error":              {sampled, true, 2, 570},
		"no fallback":              {&alone, false, 2, 0},
		"fallback for people only": {&secret, false, 2, 0},
		"interval of the overlay":  {&slower, false, 2, 117},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, func(p *poller.Parts) {
					p.Polls = map[string]func(*ferrule.Manifest) []ferrule.Poll{"d": mcpu.Polls}
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
				w.Put(online("robot"), test.manifest)
				time.Sleep(10 * time.Minute)
				w.Put(in(ferrule.StateOffline, "robot"), test.manifest)
				w.Put(online("robot"), test.manifest) // a reconnect keeps the fallback
				if n := len(w.times("robot get_pin_buffer")); n != test.buffers {
					t.Errorf("%d reads of the buffer, want %d", n, test.buffers)
				}
				samples, _ := w.recorded("robot", "light")
				if n := len(samples); n < test.samples*9/10 || n > test.samples*11/10 {
					t.Errorf("%d samples", n)
				}
				for _, s := range samples { // taken within the sample interval before, plus a tenth
					if s.Value != 7 || s.Within != ferrule.Duration(556*time.Millisecond) {
						t.Errorf("%+v", s)
					}
				}
				if test.samples == 0 && w.Stats().Polls != 0 {
					t.Errorf("counted %+v", w.Stats())
				}
				w.reset()
				other := *test.manifest
				dev := online("robot")
				dev.Kind = "k2"
				w.Put(dev, &other)
				time.Sleep(time.Minute)
				if n := len(w.times("robot get_pin_buffer")); n != 2 {
					t.Errorf("%d reads of the buffer of other firmware, want 2", n)
				}
			})
		})
	}
}

// TestOccasionalRefusal checks that single refusals, which may be noise, do not end a poll.
func TestOccasionalRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, withMCPU)
		n := 0
		w.answer = func(*ferrule.Call) (string, error) {
			if n++; n%2 == 1 {
				return "", ferrule.Errorf(ferrule.Refused, "Parse error")
			}
			return "", ferrule.Errorf(ferrule.Unanswered, "silence")
		}
		w.Put(online("robot"), thresholdPin())
		time.Sleep(20 * time.Minute)
		if n := len(w.times("robot get_pin_events")); n < 10 {
			t.Errorf("%d polls, want at least 10", n)
		}
	})
}
