package mcpu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/thing"
)

// sampled returns a manifest with these pins and all tools for samples.
func sampled(pins ...ferrule.Pin) *ferrule.Manifest {
	return &ferrule.Manifest{Pins: pins, Tools: []ferrule.Tool{{Name: "get_pin_buffer"}, {Name: "get_pin_summary"}, {Name: "get_pin_events"}}}
}

func sampling(interval time.Duration, size int) *ferrule.Sampling {
	return &ferrule.Sampling{Interval: ferrule.Duration(interval), Size: size}
}

// show returns polls as text.
func show(all []ferrule.Poll) string {
	var lines []string
	for _, p := range all {
		line := fmt.Sprintf("%s %s %s %v", p.Name, p.Tool, p.Args, p.Every)
		if p.Fallback != nil {
			line += " else " + show([]ferrule.Poll{*p.Fallback})
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestPolls(t *testing.T) {
	all := []string{"buffer", "events", "summary"}
	for name, test := range map[string]struct {
		manifest *ferrule.Manifest
		want     string
	}{
		"no pins":     {sampled(), ""},
		"not sampled": {sampled(ferrule.Pin{Number: 2, Name: "led"}), ""},
		"a buffer": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: []string{"buffer"}, Sampling: sampling(500*time.Millisecond, 20)}),
			`light get_pin_buffer {"pin":34,"limit":20} 4s`,
		},
		"all of it": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: all, Sampling: sampling(500*time.Millisecond, 120)}),
			`light get_pin_buffer {"pin":34,"limit":120} 24s else light get_pin_summary {"pin":34} 1s; light_threshold get_pin_events {"pin":34} 1s`,
		},
		"a summary": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: []string{"summary"}, Sampling: sampling(5*time.Second, 0)}),
			`light get_pin_summary {"pin":34} 5s`,
		},
		"a summary at an unknown interval": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: []string{"summary"}}),
			`light get_pin_summary {"pin":34} 1s`,
		},
		"a buffer of unknown size": {sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: []string{"buffer"}}), ""},
		"a buffer of one": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: all[:1], Sampling: sampling(time.Second, 1)}), "",
		},
		"a buffer that is too large": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: []string{"buffer", "summary"}, Sampling: sampling(time.Second, ferrule.MaxSamples+1)}),
			`light get_pin_summary {"pin":34} 1s`,
		},
		"a buffer that fills quickly": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: all[:1], Sampling: sampling(time.Millisecond, 20)}),
			`light get_pin_buffer {"pin":34,"limit":20} 1s`,
		},
		"a buffer that fills slowly": {
			sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: all[:1], Sampling: sampling(time.Minute, 300)}),
			`light get_pin_buffer {"pin":34,"limit":300} 1m0s`,
		},
		"without the tools": {
			&ferrule.Manifest{Pins: []ferrule.Pin{{Number: 34, Name: "light", Abilities: all, Sampling: sampling(time.Second, 20)}}}, "",
		},
		"without the tool for buffers": {
			&ferrule.Manifest{
				Tools: []ferrule.Tool{{Name: "get_pin_summary"}},
				Pins:  []ferrule.Pin{{Number: 34, Name: "light", Abilities: all, Sampling: sampling(time.Second, 20)}},
			},
			`light get_pin_summary {"pin":34} 1s`,
		},
		"names that are missing or taken": {
			sampled(
				ferrule.Pin{Number: 1, Name: "bed °C", Abilities: all[2:]},
				ferrule.Pin{Number: 2, Name: "bed  C", Abilities: all[2:]},
				ferrule.Pin{Number: 2, Name: "bed_C", Abilities: all[2:]},
				ferrule.Pin{Number: 3, Name: "☃", Abilities: all[2:]},
				ferrule.Pin{Number: 4, Name: "bed_C_threshold", Abilities: all[2:]},
			),
			`bed_C get_pin_summary {"pin":1} 1s; bed_C_2 get_pin_summary {"pin":2} 1s; bed_C_2_2 get_pin_summary {"pin":2} 1s; ` +
				`pin_3 get_pin_summary {"pin":3} 1s; bed_C_threshold_4 get_pin_summary {"pin":4} 1s`,
		},
		"names that are long": {
			sampled(
				ferrule.Pin{Number: 1, Name: strings.Repeat("x", 100), Abilities: all[1:2]},
				ferrule.Pin{Number: 2, Name: strings.Repeat("x", 100), Abilities: all[1:2]},
			),
			strings.Repeat("x", 54) + `_threshold get_pin_events {"pin":1} 1s; ` + strings.Repeat("x", 52) + `_2_threshold get_pin_events {"pin":2} 1s`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			polls := mcpu.Polls(test.manifest)
			if got := show(polls); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			for _, p := range polls {
				if err := ferrule.CheckSignal(p.Name); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestPollsOfTheSameName: each signal has its own name, whatever the names of the pins. The
// cost is linear in their number: each attempt to find a name allocates one.
func TestPollsOfTheSameName(t *testing.T) {
	var longest time.Duration
	for _, name := range []string{"", "light", "light_7", "light_threshold", strings.Repeat("x", 100)} {
		var pins []ferrule.Pin
		for i := range ferrule.MaxPins {
			pins = append(pins, ferrule.Pin{Number: 7, Name: name, Abilities: []string{"summary", "events"}})
			if i%3 == 0 {
				pins[i].Name = fmt.Sprintf("light_7_%d", i)
			}
		}
		cost := func(n int) float64 {
			return testing.AllocsPerRun(1, func() { mcpu.Polls(sampled(pins[:n]...)) })
		}
		if half, all := cost(ferrule.MaxPins/2), cost(ferrule.MaxPins); all > 3*half {
			t.Errorf("%q: %.0f allocations, for twice as many pins %.0f", name, half, all)
		}
		start, names := time.Now(), make(map[string]bool)
		for _, p := range mcpu.Polls(sampled(pins...)) {
			if err := ferrule.CheckSignal(p.Name); err != nil || names[p.Name] {
				t.Errorf("%q, or twice: %v", p.Name, err)
			}
			names[p.Name] = true
		}
		longest = max(longest, time.Since(start))
		if len(names) != 2*ferrule.MaxPins {
			t.Errorf("%q: %d names", name, len(names))
		}
	}
	figure.AtMost(t, "naming the signals of a board", longest, time.Second)
}

// poll returns one poll of a pin with all abilities.
func poll(t *testing.T, name string) ferrule.Poll {
	t.Helper()
	all := mcpu.Polls(sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: []string{"buffer", "events", "summary"}, Sampling: sampling(500*time.Millisecond, 4)}))
	switch name {
	case "buffer":
		return all[0]
	case "summary":
		return *all[0].Fallback
	}
	return all[1]
}

func TestPollsParse(t *testing.T) {
	for _, test := range []struct{ poll, answer, want string }{
		{"buffer", `{"pin":"light","count":3,"values":[402,418.5,-1]}`, `[{light  [402 418.5 -1] 500ms 4 false}]`},
		{"buffer", `{"pin":"light","count":2,"values":[402,null]}`, `[{light  [402 NaN] 500ms 4 false}]`},
		{"buffer", `{"values":["x",true,{},[],1e999,1]}`, `got 6 values, but the buffer holds 4`},
		{"buffer", `{"values":["x",true,1e999,-1e999]}`, `[{light  [NaN NaN NaN NaN] 500ms 4 false}]`},
		{"buffer", `{"values":[]}`, `[{light  [] 500ms 4 false}]`},
		{"buffer", `{"values":[1,2,3,4,5]}`, `got 5 values, but the buffer holds 4`},
		{"buffer", `{"values":null}`, `values is missing`},
		{"buffer", `{"count":0}`, `values is missing`},
		{"buffer", `{"values":5}`, `values must be an array, got a number`},
		{"buffer", `[1,2]`, `must be an object, got an array`},
		{"buffer", `{"pin":"light","buffer_available":false,"reason":"no room"}`, `refused: the board has no buffer for this pin`},
		{"buffer", `{"buffer_available":true,"values":[1]}`, `[{light  [1] 500ms 4 false}]`},
		{"summary", `{"pin":34,"name":"light","latest":512.5,"min":1,"max":900,"avg":400,"samples":20}`, `[{light  [512.5] 500ms 1 false}]`},
		{"summary", `{"latest":0,"samples":0}`, `[{light  [NaN] 500ms 1 false}]`},
		{"summary", `{"latest":null,"samples":3}`, `[{light  [NaN] 500ms 1 false}]`},
		{"summary", `{"latest":7}`, `[{light  [7] 500ms 1 false}]`},
		{"summary", `{}`, `[{light  [NaN] 500ms 1 false}]`},
		{"summary", `7`, `must be an object, got a number`},
		{"events", `{"pin":"light","events":[]}`, `[{light_threshold  [0] 500ms 1 true}]`},
		{"events", `{"events":[{"type":"threshold_high","value":900,"threshold":800}]}`, `[{light_threshold  [1] 500ms 1 true}]`},
		{"events", `{"events":[{"type":"threshold_low","value":1,"threshold":8}]}`, `[{light_threshold  [-1] 500ms 1 true}]`},
		{"events", `{"events":[{"type":"sunset"}]}`, `[{light_threshold  [0] 500ms 1 true}]`},
		{"events", `{}`, `events is missing`},
		{"events", `{"events":7}`, `events must be an array, got a number`},
	} {
		measures, err := poll(t, test.poll).Parse(json.RawMessage(test.answer))
		got := fmt.Sprint(measures)
		if e, ok := err.(*ferrule.Error); ok {
			got = fmt.Sprintf("%s: %v", e.Code, e)
		} else if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s %s: got %s, want %s", test.poll, test.answer, got, test.want)
		}
	}
}

// FuzzPolls parses any answer: the measurements are few, named and finite.
func FuzzPolls(f *testing.F) {
	for _, seed := range []string{
		`{"pin":"light","count":3,"values":[402,418.5,null]}`, `{"pin":"light","buffer_available":false,"reason":"no room"}`,
		`{"pin":34,"name":"light","latest":512.5,"min":1,"max":900,"avg":400,"samples":20}`,
		`{"pin":"light","events":[{"type":"threshold_high","value":900,"threshold":800}]}`, `{"values":[1e999,"x",[],{}]}`, `null`,
	} {
		f.Add([]byte(seed))
	}
	polls := mcpu.Polls(sampled(ferrule.Pin{Number: 34, Name: "light", Abilities: []string{"buffer", "events", "summary"}, Sampling: sampling(time.Second, 4)}))
	polls = append(polls, *polls[0].Fallback)
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, p := range polls {
			measures, err := p.Parse(answer)
			if (err == nil) != (len(measures) == 1) {
				t.Fatalf("%s: %v and %v", p.Tool, measures, err)
			}
			for _, m := range measures {
				if err := ferrule.CheckSignal(m.Signal); err != nil || len(m.Values) > max(m.Size, 1) {
					t.Errorf("%s: %+v, %v", p.Tool, m, err)
				}
				for _, v := range m.Values {
					if math.IsInf(v, 0) || m.State && v != -1 && v != 0 && v != 1 {
						t.Errorf("%s: %v", p.Tool, v)
					}
				}
			}
		}
	})
}

// TestPollsOfAThing: a device from the SDK can be polled, in requests that fit a small
// board.
func TestPollsOfAThing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device := thing.New("board", "1")
		device.Profile = "rich"
		var level atomic.Int64
		level.Store(100)
		device.Analog(34, "light", "", func() int { return int(level.Load()) }).Sampled(100*time.Millisecond, 20).Summary().Thresholds(50, 500)
		device.Analog(35, "heat", "", func() int { return 2 * int(level.Load()) }).Sampled(time.Second, 0).Summary()
		link, far := transporttest.Pipe(transport.Info{SafeWrite: 119})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		served := make(chan error, 1)
		go func() { served <- device.Serve(ctx, far) }()
		session, manifest, err := mcpu.New().Greet(ctx, link)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- session.Run(ctx) }()
		file, err := overlay.Parse(mcpu.Overlay)
		if err != nil {
			t.Fatal(err)
		}
		effective := overlay.NewSet(file).Apply(mcpu.Name, "", "board", manifest)
		time.Sleep(950 * time.Millisecond)
		level.Store(600)
		time.Sleep(time.Second)
		var got []string
		for _, p := range mcpu.Polls(effective) {
			tool := effective.Tool(p.Tool)
			var args map[string]any
			decoder := json.NewDecoder(bytes.NewReader(p.Args))
			decoder.UseNumber()
			if err := decoder.Decode(&args); err != nil {
				t.Fatal(err)
			}
			if wrong := tool.Check(args); wrong != nil || tool.Effect != ferrule.Reads {
				t.Errorf("%s: %q, %s", p.Name, wrong, tool.Effect)
			}
			result, err := session.Invoke(ctx, &ferrule.Call{Device: "board", Tool: p.Tool, Args: p.Args})
			if err != nil {
				t.Fatal(err)
			}
			measures, err := p.Parse(result.Value)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(measures))
		}
		want := "[{light  [100 100 100 100 100 100 100 100 100 100 600 600 600 600 600 600 600 600 600 600] 100ms 20 false}]" +
			"[{light_threshold  [1] 100ms 1 true}][{heat  [1200] 1s 1 false}]"
		if strings.Join(got, "") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, ""), want)
		}
		cancel()
		<-ended
		<-served
	})
}
