package overlay_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const kilnJob = `"poll":"kiln_status","args":{"of":"{id}"},"id":"job","done":{"state":"done"},"failed":{"state":["stopped","error"],"heat.celsius":{"above":0}},` +
	`"result":"heat","message":"{state}, {left} s left","cancel":"stop_kiln","cancel_args":{"job":"{id}"},"every":"2s"`

func kiln() *ferrule.Manifest {
	return &ferrule.Manifest{Model: "kiln", Tools: []ferrule.Tool{{Name: "start_kiln", Output: json.RawMessage(`{"type":"object"}`)}, {Name: "kiln_status"}, {Name: "stop_kiln"}}}
}

// TestJob checks what an overlay makes of the answers of a board.
func TestJob(t *testing.T) {
	m := overlay.NewSet(parse(t, `{"tools":{"start_kiln":{"job":{`+kilnJob+`}}}}`)).Apply("mcpu", "", "kiln", kiln())
	tool := m.Tool("start_kiln")
	if tool.Quarantine != "" || tool.Job == nil || tool.CheckOutput != nil || tool.Output != nil {
		t.Fatalf("got %+v", tool)
	}
	id, err := tool.Job.ID(&ferrule.Result{Value: json.RawMessage(`{"job":7,"state":"firing"}`)})
	if err != nil || string(id) != "7" {
		t.Fatalf("got %s, %v", id, err)
	}
	if args := string(tool.Job.PollArgs(id)) + string(tool.Job.CancelArgs(id)); args != `{"of":7}{"job":7}` {
		t.Errorf("got %s", args)
	}
	for answer, want := range map[string]string{
		`{"job":7,"state":"firing","left":90}`:                    `{"Done":false,"Failed":false,"ID":7,"Message":"firing, 90 s left"}`,
		`{"job":7,"state":"done","heat":{"celsius":900}}`:         `{"Done":true,"Failed":false,"ID":7,"Message":"done,  s left","Result":{"value":{"celsius":900}}}`,
		`{"job":7,"state":"error","heat":{"celsius":900}}`:        `{"Done":false,"Failed":true,"ID":7,"Message":"error,  s left"}`,
		`{"job":7,"state":"error","heat":{"celsius":0}}`:          `{"Done":false,"Failed":false,"ID":7,"Message":"error,  s left"}`,
		`{"job":{"a":1},"state":"done","heat":1}`:                 `{"Done":true,"Failed":false,"ID":null,"Message":"done,  s left","Result":{"value":1}}`,
		`"{\"job\":7,\"state\":\"firing\",\"left\":true}"`:        `{"Done":false,"Failed":false,"ID":7,"Message":"firing, true s left"}`,
		`{"job":7,"state":"done"}`:                                `it is done, but has no heat`,
		`"no JSON`:                                                `its answer is not JSON`,
		`{"job":"` + strings.Repeat("x", 300) + `","state":"on"}`: `{"Done":false,"Failed":false,"ID":null,"Message":"on,  s left"}`,
	} {
		status, err := tool.Job.Read(&ferrule.Result{Value: json.RawMessage(answer)})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			if !status.Done {
				status.Result = nil
			}
			data, err := json.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			got = strings.Replace(string(data), `,"Result":null`, "", 1)
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", answer, got, want)
		}
	}
	text := &ferrule.Result{Content: []ferrule.Content{{Type: ferrule.TextContent, Text: `{"job":"a"}`}}}
	if id, err := tool.Job.ID(text); err != nil || string(id) != `"a"` {
		t.Errorf("got %s, %v", id, err)
	}
	if id, err := tool.Job.ID(&ferrule.Result{Value: json.RawMessage(`{}`)}); err == nil {
		t.Errorf("got %s", id)
	}
}

// TestJobErrors checks which jobs are mistakes, in the overlay or on this device.
func TestJobErrors(t *testing.T) {
	for job, want := range map[string]string{
		`"done":{"a":1}`:                                          "tools.start_kiln.job.poll: must be a printable name",
		`"poll":"kiln_status"`:                                    "tools.start_kiln.job.done: must have a condition",
		`"poll":"kiln_status","done":{"a":{"over":1}}`:            "a must be a value, a list of values, or an object with above, below or not",
		`"poll":"kiln_status","done":{"a":1},"every":"100ms"`:     "tools.start_kiln.job.every: must be from 500ms to 1m0s, got 100ms",
		`"poll":"kiln_status","done":{"a":1},"args":3`:            "tools.start_kiln.job.args: must be an object",
		`"poll":"kiln_status","done":{"a":1},"cancel_args":{}`:    "tools.start_kiln.job.cancel_args: has no meaning without cancel",
		`"poll":"kiln_status","done":{"a":1},"args":{"a":"{id}"}`: "tools.start_kiln.job.id: must be set, because the arguments use {id}",
	} {
		if _, err := overlay.Parse([]byte(`{"tools":{"start_kiln":{"job":{` + job + `}}}}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", job, err, want)
		}
	}
	for tools, want := range map[string]string{
		`"start_kiln":{"job":{"poll":"status","done":{"a":1}}}`:                                           `its job uses the tool "status" as poll, which the device does not have`,
		`"start_kiln":{"job":{"poll":"start_kiln","done":{"a":1}}}`:                                       `its job uses the tool itself as poll`,
		`"start_kiln":{"job":{"poll":"kiln_status","done":{"a":1},"cancel":"x"}}`:                         `its job uses the tool "x" as cancel, which the device does not have`,
		`"kiln_status":{"effect":"endangers"},"start_kiln":{"job":{"poll":"kiln_status","done":{"a":1}}}`: `its job polls with the tool "kiln_status", which must only read`,
		`"kiln_status":{"input":{"type":5}},"start_kiln":{"job":{"poll":"kiln_status","done":{"a":1}}}`:   `its job uses the tool "kiln_status" as poll, which is in quarantine`,
	} {
		m := overlay.NewSet(parse(t, `{"tools":{`+tools+`}}`)).Apply("mcpu", "", "kiln", kiln())
		if got := m.Tool("start_kiln").Quarantine; !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %s", tools, got, want)
		}
	}
}

// FuzzJob checks that no answer of a device can break its job.
func FuzzJob(f *testing.F) {
	for _, answer := range []string{`{"job":7,"state":"done","heat":{"celsius":900}}`, `"{\"job\":7}"`, `[]`, `{"job":1e999,"heat":[1],"state":null}`, `x`} {
		f.Add([]byte(answer))
	}
	file, err := overlay.Parse([]byte(`{"tools":{"start_kiln":{"job":{` + kilnJob + `}}}}`))
	if err != nil {
		f.Fatal(err)
	}
	job := overlay.NewSet(file).Apply("mcpu", "", "kiln", kiln()).Tool("start_kiln").Job
	f.Fuzz(func(t *testing.T, answer []byte) {
		result := &ferrule.Result{Value: answer}
		if id, err := job.ID(result); err == nil {
			if _, err := ferrule.NewJob("overlay:"+string(id), "", 0); err != nil && ferrule.Visible(string(id)) {
				t.Errorf("ID %q: %v", id, err)
			}
			if !json.Valid(job.PollArgs(id)) {
				t.Errorf("arguments %s", job.PollArgs(id))
			}
		}
		if status, err := job.Read(result); err == nil && status.Done && status.Failed {
			t.Errorf("done and failed: %s", answer)
		}
	})
}
