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
		"a number":            {value: `21.5`, want: `p=[21.5]/0s/0`},
		"a truth":             {value: `true`, want: `p=[1]/0s/0`},
		"nothing":             {value: `null`, want: `p=[NaN]/0s/0`},
		"a text":              {value: `"21.5"`, want: `there is no number in its answer`},
		"a list":              {value: `[1,2]`, want: `there is no number in its answer`},
		"too large a number":  {value: `1e999`, want: `p=[NaN]/0s/0`},
		"no JSON":             {value: `21.5 °C`, want: `its answer makes no sense: something follows it`},
		"broken JSON":         {value: `{"a":`, want: `its answer makes no sense: unexpected EOF`},
		"an empty object":     {value: `{}`, want: `there is no number in its answer`},
		"members":             {value: `{"temp":21.5,"wet":false,"name":"bed","at":[1]}`, want: `p_temp=[21.5]/0s/0 p_wet=[0]/0s/0`},
		"a member without":    {value: `{"temp":null,"wet":false}`, want: `p_temp=[NaN]/0s/0 p_wet=[0]/0s/0`},
		"members of a member": {value: `{"temp":{"c":21.5,"f":70.7},"x":{"y":{"z":1}}}`, want: `p_temp_c=[21.5]/0s/0 p_temp_f=[70.7]/0s/0`},
		"names that are none": {value: `{"°":1,"bed °C":2,"bed  C":3}`, want: `p_bed_C=[3]/0s/0`},
		"what was asked for": {
			args: `{"pin":34,"fast":true,"level":5}`, value: `{"pin":34,"fast":true,"level":6,"value":7}`,
			want: `p_level=[6]/0s/0 p_value=[7]/0s/0`,
		},
		"a buffer":                    {value: `{"type":"buffer","values":[1,null,2.5,true],"sample_interval_ms":500}`, want: `p=[1 NaN 2.5 1]/500ms/4096`},
		"a buffer of each second":     {value: `{"type":"buffer","values":[1]}`, want: `p=[1]/1s/4096`},
		"a buffer of something":       {value: `{"type":"buffer","resource":"touch pad","values":[1,2]}`, want: `p_touch_pad=[1 2]/1s/4096`},
		"an empty buffer":             {value: `{"type":"buffer","values":[]}`, want: `p=[]/1s/4096`},
		"buffers":                     {value: `{"a":{"type":"buffer","values":[1]},"b":{"type":"buffer","values":[2]}}`, want: `p_a=[1]/1s/4096 p_b=[2]/1s/4096`},
		"a buffer without an end":     {value: `{"type":"buffer","values":[` + strings.Repeat("1,", 4096) + `1]}`, want: `its answer has 4097 values; at most 4096 are possible`},
		"a buffer that takes no time": {value: `{"type":"buffer","values":[1],"sample_interval_ms":0}`, want: `it samples each 0 ms, it says`},
		"a buffer that takes forever": {value: `{"type":"buffer","values":[1],"sample_interval_ms":1e12}`, want: `it samples each 1e12 ms, it says`},
		"a buffer that takes a word":  {value: `{"type":"buffer","values":[1],"sample_interval_ms":"fast"}`, want: `it samples each fast ms, it says`},
		"values, and nobody says how": {value: `{"count":2,"values":[1,2]}`, want: `p_count=[2]/0s/0`},
		"values, as the owner says":   {ring: ring, value: `{"pin":"light","count":2,"values":[1,2]}`, want: `p=[1 2]/500ms/4`},
		"a list, as the owner says":   {ring: ring, value: `[1,2]`, want: `p=[1 2]/500ms/4`},
		"more than the owner says":    {ring: ring, value: `[1,2,3,4,5]`, want: `its answer has 5 values; at most 4 are possible`},
		"the owner knows better":      {ring: ring, value: `{"type":"buffer","resource":"x","values":[1],"sample_interval_ms":7}`, want: `p=[1]/500ms/4`},
		"too many members":            {value: `{` + strings.Join(many, ",") + `}`, want: "64 of them"},
		"too long":                    {value: `"` + strings.Repeat("x", 256<<10) + `"`, want: `its answer has 262146 bytes; at most 262144 are read`},
		"a text that is JSON":         {content: text(`{"temp":21}`), want: `p_temp=[21]/0s/0`},
		"one of several":              {content: text("it is warm", `{"temp":21}`), want: `p_temp=[21]/0s/0`},
		"several":                     {content: text("1", "2"), want: `there is no JSON in its answer`},
		"no text":                     {content: []ferrule.Content{{Type: ferrule.ImageContent, Data: []byte("1")}}, want: `there is no JSON in its answer`},
	} {
		t.Run(name, func(t *testing.T) {
			probe := &ferrule.Poll{Name: "p", Args: json.RawMessage(test.args), Ring: test.ring}
			measures, err := measuresOf(probe, &ferrule.Result{Value: json.RawMessage(test.value), Content: test.content})
			var got []string
			for _, m := range measures {
				got = append(got, fmt.Sprintf("%s=%v/%v/%d", m.Signal, m.Values, m.Interval, m.Size))
			}
			if len(measures) > 10 {
				got = []string{fmt.Sprintf("%d of them", len(measures))}
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

// FuzzAnswer gives answers of any content: what is taken from one is few, named, finite,
// and always the same.
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
		probe := &ferrule.Poll{Name: "p", Args: json.RawMessage(`{"pin":34}`)}
		if ring {
			probe.Ring = &ferrule.Sampling{Interval: 1e9, Size: 8}
		}
		result := &ferrule.Result{Value: value}
		measures, err := measuresOf(probe, result)
		if (err == nil) != (len(measures) > 0) || len(measures) > ferrule.MaxBatches {
			t.Fatalf("%d measures, %v", len(measures), err)
		}
		names, values := make(map[string]bool), 0
		for _, m := range measures {
			if err := ferrule.CheckSignal(m.Signal); err != nil || names[m.Signal] || !strings.HasPrefix(m.Signal, "p") {
				t.Errorf("signal %q, or twice: %v", m.Signal, err)
			}
			names[m.Signal] = true
			values += len(m.Values)
			if slices.ContainsFunc(m.Values, func(v float64) bool { return math.IsInf(v, 0) }) || m.Interval < 0 || len(m.Values) > max(m.Size, 1) {
				t.Errorf("%+v", m)
			}
		}
		if values > ferrule.MaxSamples {
			t.Errorf("%d values", values)
		}
		if again, _ := measuresOf(probe, result); fmt.Sprint(again) != fmt.Sprint(measures) {
			t.Errorf("first %v, then %v", measures, again)
		}
	})
}
