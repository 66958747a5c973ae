package condition

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// parse decodes and checks a condition.
func parse(data []byte) (c Condition, err error) {
	if err := json.Unmarshal(data, &c); err != nil {
		return c, err
	}
	return c, c.Check()
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{"device":"d","signal":"s","above":1}`:                                                    "",
		`{"device":"d","signal":"s","outside":{"from":1,"to":2},"for":"30s","hysteresis":0.5}`:     "",
		`{"device":"room=kitchen,floor=1","signal":"s","changes":true}`:                            "",
		`{"device":"*","event":"gone"}`:                                                            "",
		`{"device":"d","event":"notifications/message","params":{"level":"error","n":1,"x":null}}`: "",
		`{}`:                          "must be the ID of a device",
		`{"device":"d"}`:              "must have signal or event",
		`{"device":"d","signal":"s"}`: "exactly one of above",
		`{"device":"d","signal":"s","event":"e","above":1}`:                        "signal or event, and not both",
		`{"device":"d","signal":"s","above":1,"below":2}`:                          "exactly one of above",
		`{"device":"d","signal":"s","above":"1"}`:                                  "cannot unmarshal string",
		`{"device":"d","signal":"s","above":1e999}`:                                "cannot unmarshal number",
		`{"device":"d","signal":"s","above":1,"for":"-1s"}`:                        "for: must be from 0s",
		`{"device":"d","signal":"s","above":1,"for":"8d"}`:                         "for: must be from 0s",
		`{"device":"d","signal":"s","above":1,"for":"soon"}`:                       "must be a duration such as 30s",
		`{"device":"d","signal":"s","changes":true,"for":"1s"}`:                    "cannot be combined with changes",
		`{"device":"d","signal":"s","above":1,"hysteresis":-1}`:                    "hysteresis: must be 0 or more",
		`{"device":"d","signal":"s","outside":{"from":1,"to":2},"hysteresis":0.6}`: "at most half of the band",
		`{"device":"d","signal":"s","inside":{"from":2,"to":2}}`:                   "inside: from must be less than to",
		`{"device":"d","signal":"a b","above":1}`:                                  "signal: must be 1 to 64",
		`{"device":"d","signal":"s","above":1,"params":{"x":1}}`:                   "params: only for events",
		`{"device":"gateway","signal":"s","above":1}`:                              "gateway is not a device",
		`{"device":"a b","signal":"s","above":1}`:                                  "must be the ID of a device",
		`{"device":"[","signal":"s","above":1}`:                                    "invalid device pattern",
		`{"device":"room=","signal":"s","above":1}`:                                "must have a value",
		`{"device":"a=b,c=d,e=f,g=h,i=j","signal":"s","above":1}`:                  "5 labels; limit is 4",
		`{"device":"d","event":"gone","above":1}`:                                  "are for signals",
		`{"device":"d","event":"gone","for":"1s"}`:                                 "for and hysteresis are for signals",
		`{"device":"d","event":"approval"}`:                                        "approvals are not events",
		`{"device":"d","event":"e","params":{"x":{}}}`:                             "params: x must be a text",
		`{"device":"d","event":"e","params":[1]}`:                                  "cannot unmarshal array",
		`{"device":"d","event":"` + strings.Repeat("x", 200) + `"}`:                "event: must be an event type",
	} {
		_, err := parse([]byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.80s: error %v, want %q", text, err, want)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		c := Condition{Device: "d", Signal: "s", Below: &v}
		if c.Check() == nil {
			t.Errorf("%v is accepted", v)
		}
	}
}

// TestCheckAt checks that errors have the path of what the caller wrote.
func TestCheckAt(t *testing.T) {
	for text, want := range map[string]string{
		`{"device":"d","signal":"s","above":1,"for":"8d"}`:       "when.for: must be from 0s",
		`{"device":"d","signal":"s","inside":{"from":2,"to":2}}`: "when.inside: from must be less than to",
		`{"device":"gateway","event":"gone"}`:                    "when.device: gateway is not a device",
		`{"device":"d"}`:                                         "when: a condition must have signal or event",
		`{"device":"d","event":"e","params":{"x":{}}}`:           "when.params: x must be",
		`{"device":"d","event":"e"}`:                             "",
	} {
		c, _ := parse([]byte(text))
		if err := c.CheckAt("when"); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzCheck checks that a condition that is accepted can be evaluated, and stays the same when
// it is written and read again.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"device":"d","signal":"s","above":1,"for":"30s","hysteresis":2}`))
	f.Add([]byte(`{"device":"room=k*,floor=1","signal":"s","outside":{"from":-1,"to":2}}`))
	f.Add([]byte(`{"device":"kitchen-*","event":"button","params":{"n":1,"b":true}}`))
	f.Add([]byte(`{"device":"d","signal":"s","changes":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(data)
		if err != nil {
			return
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err == nil && !(len(c.Params) == 0 && c.Params != nil) && !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v is %+v when it is parsed again", c, again)
		}
		x := NewIndex(Parts{})
		if err := x.Add(Entry{ID: "a", Condition: c, Hit: func(Hit) {}}); err != nil {
			t.Fatal(err)
		}
		x.Devices().Put(dev("d", "room=kitchen", "floor=1"), nil)
		x.Reading(reading("d", "s", true, ferrule.Sample{Time: time.Unix(1, 0), Value: 1}, ferrule.Sample{Time: time.Unix(100, 0), Value: 3}))
		x.Event(ferrule.Event{Device: "d", Type: ferrule.Notified, Method: "button", Params: []byte(`{"n":1}`)})
		x.advance(time.Unix(1e6, 0))
	})
}
