package poller

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func TestAnswer(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"m%03d":%d`, i, i)
	}
	ring := &ferrule.Sampling{Interval: ferrule.Duration(500 * time.Millisecond), Size: 4}
	text := func(texts ...string) (all []ferrule.Content) {
		for _, t := range texts {
			all = append(all, ferrule.Content{Type: ferrule.TextContent, Text: t})
		}
		return all
	}
	for name, test := range map[string]struct {
		args    string
		ring    *ferrule.Sampling
		value   string
		content []ferrule.Content
		want    string // signal=values/interval/size, or an error
	}{
		"number":              {value: `21.5`, want: `p=[21.5]/0s/0`},
		"boolean":             {value: `true`, want: `p=[1]/0s/0`},
		"null":                {value: `null`, want: `p=[NaN]/0s/0`},
		"string":              {value: `"21.5"`, want: `the answer has no number`},
		"array":               {value: `[1,2]`, want: `the answer has no number`},
		"number out of range": {value: `1e999`, want: `p=[NaN]/0s/0`},
		"trailing data":       {value: `21.5 °C`, want: `invalid JSON in the answer: data after the JSON value`},
		"broken JSON":         {value: `{"a":`, want: `invalid JSON in the answer: unexpected EOF`},
		"empty object":        {value: `{}`, want: `the answer has no number`},
		"members":             {value: `{"temp":21.5,"wet":false,"name":"bed","at":[1]}`, want: `p_temp=[21.5]/0s/0 p_wet=[0]/0s/0`},
		"null member":         {value: `{"temp":null,"wet":false}`, want: `p_temp=[NaN]/0s/0 p_wet=[0]/0s/0`},
		"nested members":      {value: `{"temp":{"c":21.5,"f":70.7},"x":{"y":{"z":1}}}`, want: `p_temp_c=[21.5]/0s/0 p_temp_f=[70.7]/0s/0`},
		"unusable names":      {value: `{"°":1,"bed °C":2,"bed  C":3}`, want: `p_bed_C=[3]/0s/0`},
		"repeated arguments": {
			args: `{"pin":34,"fast":true,"level":5}`, value: `{"pin":34,"fast":true,"level":6,"value":7}`,
			want: `p_level=[6]/0s/0 p_value=[7]/0s/0`,
		},
		"buffer":                    {value: `{"type":"buffer","values":[1,null,2.5,true],"sample_interval_ms":500}`, want: `p=[1 NaN 2.5 1]/500ms/4096`},
		"buffer without interval":   {value: `{"type":"buffer","values":[1]}`, want: `p=[1]/1s/4096`},
		"buffer of a resource":      {value: `{"type":"buffer","resource":"touch pad","values":[1,2]}`, want: `p_touch_pad=[1 2]/1s/4096`},
		"empty buffer":              {value: `{"type":"buffer","values":[]}`, want: `p=[]/1s/4096`},
		"buffers":                   {value: `{"a":{"type":"buffer","values":[1]},"b":{"type":"buffer","values":[2]}}`, want: `p_a=[1]/1s/4096 p_b=[2]/1s/4096`},
		"too many values":           {value: `{"type":"buffer","values":[` + strings.Repeat("1,", 4096) + `1]}`, want: `the answer has 4097 values, limit is 4096`},
		"interval of zero":          {value: `{"type":"buffer","values":[1],"sample_interval_ms":0}`, want: `sample_interval_ms must be between 1 and 86400000, got 0`},
		"interval too long":         {value: `{"type":"buffer","values":[1],"sample_interval_ms":1e12}`, want: `sample_interval_ms must be between 1 and 86400000, got 1e12`},
		"interval that is a string": {value: `{"type":"buffer","values":[1],"sample_interval_ms":"fast"}`, want: `sample_interval_ms must be between 1 and 86400000, got fast`},
		"values without a ring":     {value: `{"count":2,"values":[1,2]}`, want: `p_count=[2]/0s/0`},
		"values of a ring":          {ring: ring, value: `{"pin":"light","count":2,"values":[1,2]}`, want: `p=[1 2]/500ms/4`},
		"array of a ring":           {ring: ring, value: `[1,2]`, want: `p=[1 2]/500ms/4`},
		"more than the ring's size": {ring: ring, value: `[1,2,3,4,5]`, want: `the answer has 5 values, limit is 4`},
		"ring overrides buffer":     {ring: ring, value: `{"type":"buffer","resource":"x","values":[1],"sample_interval_ms":7}`, want: `p=[1]/500ms/4`},
		"too many members":          {value: `{` + strings.Join(many, ",") + `}`, want: "64 of them"},
		"too long":                  {value: `"` + strings.Repeat("x", 256<<10) + `"`, want: `the answer has 262146 bytes, limit is 262144`},
		"JSON text":                 {content: text(`{"temp":21}`), want: `p_temp=[21]/0s/0`},
		"one JSON text of two":      {content: text("it is warm", `{"temp":21}`), want: `p_temp=[21]/0s/0`},
		"two JSON texts":            {content: text("1", "2"), want: `the answer has no JSON value`},
		"no text":                   {content: []ferrule.Content{{Type: ferrule.ImageContent, Data: []byte("1")}}, want: `the answer has no JSON value`},
	} {
		t.Run(name, func(t *testing.T) {
			poll := &ferrule.Poll{Name: "p", Args: json.RawMessage(test.args), Ring: test.ring}
			found, err := measurements(poll, &ferrule.Result{Value: json.RawMessage(test.value), Content: test.content})
			var got []string
			for _, m := range found {
				got = append(got, fmt.Sprintf("%s=%v/%v/%d", m.Signal, m.Values, m.Interval, m.Size))
			}
			if len(found) > 10 {
				got = []string{fmt.Sprintf("%d of them", len(found))}
			}
			if err != nil {
				got = []string{err.Error()}
			}
			if all := strings.Join(got, " "); all != test.want {
				t.Errorf("got  %s\nwant %s", all, test.want)
			}
		})
	}
}

// FuzzAnswer checks that the measurements of any answer are few, named, finite and
// deterministic.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`21.5`, `null`, `{"temp":{"c":21.5},"wet":true,"pin":34}`, `{"a b":1,"a_b":2,"":3}`, `[1,2,null]`, `{"values":[1,2]}`,
		`{"type":"buffer","resource":"touch","values":[1,null,true,1e999],"sample_interval_ms":500}`,
		`{"a":{"type":"buffer","values":[]},"b":{"type":"buffer","values":[1],"sample_interval_ms":-1}}`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, value []byte, ring bool) {
		poll := &ferrule.Poll{Name: "p", Args: json.RawMessage(`{"pin":34}`)}
		if ring {
			poll.Ring = &ferrule.Sampling{Interval: 1e9, Size: 8}
		}
		result := &ferrule.Result{Value: value}
		found, err := measurements(poll, result)
		if (err == nil) != (len(found) > 0) || len(found) > ferrule.MaxBatches {
			t.Fatalf("%d measurements, error %v", len(found), err)
		}
		names, values := make(map[string]bool), 0
		for _, m := range found {
			if err := ferrule.CheckSignal(m.Signal); err != nil || names[m.Signal] || !strings.HasPrefix(m.Signal, "p") {
				t.Errorf("invalid or duplicate signal %q: %v", m.Signal, err)
			}
			names[m.Signal] = true
			values += len(m.Values)
			if slices.ContainsFunc(m.Values, func(v float64) bool { return math.IsInf(v, 0) }) || m.Interval < 0 || len(m.Values) > max(m.Size, 1) {
				t.Errorf("%+v", m)
			}
		}
		if values > ferrule.MaxSamples {
			t.Errorf("%d values, limit is %d", values, ferrule.MaxSamples)
		}
		if again, _ := measurements(poll, result); fmt.Sprint(again) != fmt.Sprint(found) {
			t.Errorf("first %v, then %v", found, again)
		}
	})
}
