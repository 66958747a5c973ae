package overlay_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// motor returns a device with a tool that moves, one that stops, and one for people.
func motor() *ferrule.Manifest {
	object := json.RawMessage(`{"type":"object","properties":{"pin":{"type":"integer"},"value":{"type":"boolean"}},"required":["pin"]}`)
	return &ferrule.Manifest{
		Pins: []ferrule.Pin{{Number: 5, Type: "digital_output"}},
		Tools: []ferrule.Tool{
			{Name: "write", Input: object}, {Name: "halt"}, {Name: "broken", Input: json.RawMessage(`{"type":5}`)}, {Name: "secret", UserOnly: true},
		},
	}
}

func effective(t *testing.T, files ...string) *ferrule.Manifest {
	t.Helper()
	var all []*overlay.File
	for _, text := range files {
		all = append(all, parse(t, text))
	}
	return overlay.NewSet(all...).Apply("d", "0123456789abcdef", "robot", motor())
}

// TestLimits checks that limits of several files are merged, and which arguments tell
// outputs apart.
func TestLimits(t *testing.T) {
	tool := effective(t,
		`{"match":{"device":"robot"},"tools":{"write":{"limits":{"cooldown":"2s"}}}}`,
		`{"tools":{"write":{"limits":{"rate":"6/m","cooldown":"1s","range":{"angle":{"min":0,"max":90,"step":5,"start":1e1}}}}}}`,
	).Tool("write")
	got, err := json.Marshal(tool.Limits)
	if want := `{"rate":"6/m","cooldown":"2s","range":{"angle":{"min":0,"max":90,"step":5,"start":1e1}}}`; err != nil || string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if tool.Limits.By == nil || len(tool.Limits.By) != 0 || tool.Quarantine != "" {
		t.Errorf("by is %v; %s", tool.Limits.By, tool.Quarantine)
	}
	for text, by := range map[string][]string{
		`{"tools":{"write":{"limits":{"rate":"1/s"},"pins":{"pin":{"types":["digital_output"]}}}}}`:                                                                       {"pin"},
		`{"tools":{"write":{"limits":{"rate":"1/s"},"lease":{"for":"1m","then":{"tool":"write","args":{"pin":"$pin","value":false,"x":"$$y"}}}}}}`:                        {"pin"},
		`{"tools":{"write":{"limits":{"rate":"1/s","by":["b","a","b"]},"pins":{"pin":{"types":["digital_output"]}}}}}`:                                                    {"a", "b"},
		`{"tools":{"write":{"limits":{"rate":"1/s","by":[]},"lease":{"for":"1m","then":{"tool":"halt"}},"pins":{"pin":{"types":["digital_output"]}}}}}`:                   {},
		`{"tools":{"write":{"limits":{"on_time":{"per":"1h","max":"20m"}},"lease":{"for":"1m","then":{"tool":"write","args":{"pin":"$pin"}}},"about":"on and a lease"}}}`: {"pin"},
	} {
		if tool := effective(t, text).Tool("write"); !slices.Equal(tool.Limits.By, by) || tool.Quarantine != "" {
			t.Errorf("%s: by is %v, want %v; %s", text, tool.Limits.By, by, tool.Quarantine)
		}
	}
}

// TestLease checks how a lease takes arguments over, and which calls switch off.
func TestLease(t *testing.T) {
	lease := effective(t, `{"tools":{"write":{"lease":{"for":"10m","then":{"tool":"write","args":{"pin":"$pin","value":false,"text":"$$x","n":1e2}}}}}}`).Tool("write").Lease
	args, err := lease.Then.For(map[string]any{"pin": json.Number("5"), "value": true})
	if err != nil || ferrule.ExactJSON(args) != `{"n":100,"pin":5,"text":"$x","value":false,}` {
		t.Errorf("got %s, %v", ferrule.ExactJSON(args), err)
	}
	if _, err := lease.Then.For(map[string]any{"value": true}); err == nil || !strings.Contains(err.Error(), "pin must be given") {
		t.Errorf("got %v", err)
	}
	for _, test := range []struct {
		lease, args string
		off         bool
	}{
		{`{"for":"1m","then":{"tool":"write","args":{"pin":"$pin","value":false}}}`, `{"pin":5,"value":false}`, true},
		{`{"for":"1m","then":{"tool":"write","args":{"pin":"$pin","value":false}}}`, `{"pin":5,"value":true}`, false},
		{`{"for":"1m","then":{"tool":"write","args":{"pin":"$pin","value":false}}}`, `{"pin":5}`, false},
		{`{"for":"1m","then":{"tool":"write","args":{"pin":"$pin","value":false}}}`, `{"value":false}`, false},
		{`{"for":"1m","then":{"tool":"write","args":{"pin":"$pin","value":false}}}`, `{"pin":5,"value":0}`, false},
		{`{"for":"1m","then":{"tool":"write","args":{"pin":7,"value":false}}}`, `{"pin":5,"value":false}`, false},
		{`{"for":"1m","then":{"tool":"halt"}}`, `{"pin":5,"value":false}`, false},
		{`{"for":"1m","off":{"duty":0},"then":{"tool":"halt"}}`, `{"pin":5,"duty":0.0}`, true},
		{`{"for":"1m","off":{"duty":0},"then":{"tool":"halt"}}`, `{"pin":5,"duty":0.1}`, false},
		{`{"for":"1m","off":{"duty":0},"then":{"tool":"halt"}}`, `{"pin":5,"duty":"0"}`, false},
	} {
		var args struct{ Args map[string]any }
		lease := effective(t, `{"tools":{"write":{"lease":`+test.lease+`}}}`).Tool("write").Lease
		d := json.NewDecoder(strings.NewReader(`{"args":` + test.args + `}`))
		d.UseNumber()
		if err := d.Decode(&args); err != nil {
			t.Fatal(err)
		}
		if off := lease.SwitchesOff("write", args.Args); off != test.off {
			t.Errorf("%s with %s: got %t", test.lease, test.args, off)
		}
	}
}

// TestUnkeptBounds checks that a tool is quarantined if its bounds cannot be kept.
func TestUnkeptBounds(t *testing.T) {
	for text, want := range map[string]string{
		`{"limits":{"on_time":{"per":"1h","max":"20m"}}}`:                                                                            "needs a lease",
		`{"lease":{"for":"1m","then":{"tool":"stop"}}}`:                                                                              `"stop", which the device does not have`,
		`{"lease":{"for":"1m","then":{"tool":"broken"}}}`:                                                                            `"broken", which is in quarantine`,
		`{"lease":{"for":"1m","then":{"tool":"secret"}}}`:                                                                            "which only people may call",
		`{"lease":{"for":"1m","then":{"tool":"write","args":{"pin":"5"}}}}`:                                                          "invalid arguments for write",
		`{"limits":{"by":[],"on_time":{"per":"1h","max":"20m"}},"lease":{"for":"1m","then":{"tool":"write","args":{"pin":"$pin"}}}}`: "limits.by must have",
		`{"lease":{"for":"1m","then":{"tool":"write","args":{"pin":5,"value":false}}}}`:                                              "",
		`{"limits":{"rate":"1/d"}}`:                                                                                                  "",
	} {
		got := effective(t, `{"tools":{"write":`+text+`}}`).Tool("write").Quarantine
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if got := effective(t, `{"tools":{"write":{"lease":{"for":"1m","then":{"tool":"halt"}}},"halt":{"lease":{"for":"1m","then":{"tool":"none"}}}}}`).Tool("write").Quarantine; !strings.Contains(got, "in quarantine") {
		t.Errorf("a lease that ends with a quarantined tool: %q", got)
	}
}

func TestParseInvalidBounds(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, test := range []struct{ text, want string }{
		{`{"limits":{"rate":"6"}}`, `tools.a.limits.rate: must be calls per time such as 6/m or 10/30s`},
		{`{"limits":{"rate":"0/m"}}`, `tools.a.limits.rate: must be`},
		{`{"limits":{"rate":"1001/m"}}`, `tools.a.limits.rate: must be`},
		{`{"limits":{"rate":"6/25h"}}`, `tools.a.limits.rate: must be`},
		{`{"limits":{"rate":"6/-1s"}}`, `tools.a.limits.rate: must be`},
		{`{"limits":{"cooldown":"-1s"}}`, `tools.a.limits.cooldown: must be from 0s to 24h, got -1s`},
		{`{"limits":{"cool":"1s"}}`, `unknown field "cool"`},
		{`{"limits":{"range":{"angle":{}}}}`, `tools.a.limits.range.angle.min: must be set`},
		{`{"limits":{"range":{"angle":{"min":5,"max":4.9}}}}`, `tools.a.limits.range.angle.max: must be at least min, 5, got 4.9`},
		{`{"limits":{"range":{"angle":{"step":0,"start":0}}}}`, `tools.a.limits.range.angle.step: must be greater than 0`},
		{`{"limits":{"range":{"angle":{"step":1}}}}`, `tools.a.limits.range.angle.start: must be set with step`},
		{`{"limits":{"range":{"angle":{"min":1,"start":1}}}}`, `tools.a.limits.range.angle.start: has no meaning`},
		{`{"limits":{"range":{"angle":{"min":1,"step":1,"start":0}}}}`, `tools.a.limits.range.angle.start: must be from min to max`},
		{`{"limits":{"range":{"angle":{"min":1e401}}}}`, `tools.a.limits.range.angle.min: must be a number`},
		{`{"limits":{"on_time":{"per":"1h","max":"1h"}}}`, `tools.a.limits.on_time.max: must be greater than 0 and less than 1h0m0s`},
		{`{"limits":{"on_time":{"max":"1h"}}}`, `tools.a.limits.on_time.per: must be from 1s to 24h`},
		{`{"limits":{"by":[""]}}`, `tools.a.limits.by: must be up to 8 names`},
		{`{"lease":{"then":{"tool":"b"}}}`, `tools.a.lease.for: must be from 1s to 24h`},
		{`{"lease":{"for":"25h","then":{"tool":"b"}}}`, `tools.a.lease.for: must be from 1s to 24h`},
		{`{"lease":{"for":"1m"}}`, `tools.a.lease.then.tool: must be the tool`},
		{`{"lease":{"for":"1m","then":{"tool":"b","args":{"x":"$"}}}}`, `tools.a.lease.then.args: $ must be followed`},
		{`{"lease":{"for":"1m","then":{"tool":"b","args":{"x":1e999}}}}`, `tools.a.lease.then.args: has a number that is out of range`},
		{`{"lease":{"for":"1m","then":{"tool":"b","args":{"x":"` + long + `"}}}}`, `tools.a.lease.then.args: has 5008 bytes`},
		{`{"lease":{"for":"1m","off":{},"then":{"tool":"b"}}}`, `tools.a.lease.off: must have at least one argument`},
		{`{"lease":{"for":"1m","when":{},"then":{"tool":"b"}}}`, `unknown field "when"`},
	} {
		if _, err := overlay.Parse([]byte(`{"tools":{"a":` + test.text + `}}`)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: got %v, want %q", test.text, err, test.want)
		}
	}
}
