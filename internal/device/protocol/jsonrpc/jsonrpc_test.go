package jsonrpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func TestAppend(t *testing.T) {
	for want, m := range map[string]jsonrpc.Message{
		`{"jsonrpc":"2.0","id":7,"method":"a\"b","params":{"x":1}}`:                     {ID: json.RawMessage("7"), Method: `a"b`, Params: json.RawMessage(`{"x":1}`)},
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                        {Method: "notifications/initialized"},
		`{"jsonrpc":"2.0","id":"x","result":{}}`:                                        {ID: json.RawMessage(`"x"`), Result: json.RawMessage(`{}`)},
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no \u003ca\u003e"}}`: {ID: json.RawMessage("1"), Error: &jsonrpc.Error{Code: -32601, Message: "no <a>"}},
	} {
		got := string(m.Append(nil))
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if decoded, ok := jsonrpc.Decode([]byte(got)); !ok || string(decoded.Append(nil)) != got {
			t.Errorf("%s decoded as %+v", got, decoded)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		data    string
		id      int
		hasID   bool
		failure string
		result  string
	}{
		{data: `{"id":7,"result":{"a":1}}`, id: 7, hasID: true, result: `{"a":1}`},
		{data: `{"id":7,"result":null}`, id: 7, hasID: true, result: `null`},
		{data: `{"id":7,"result":1,"error":null}`, id: 7, hasID: true, result: `1`},
		{data: `{"id":7,"result":1,"error":{"code":-1,"message":"m"}}`, id: 7, hasID: true, failure: "m (-1)"},
		{data: `{"id":7,"error":"jammed"}`, id: 7, hasID: true, failure: "jammed"},
		{data: `{"id":7,"error":{"message":"m"}}`, id: 7, hasID: true, failure: "m"},
		{data: `{"id":7,"method":5,"error":5}`, id: 7, hasID: true, failure: "5"},
		{data: `{"id":"7","result":1}`, result: `1`},
		{data: `{"id":4294967296,"result":1}`, result: `1`},
		{data: `{"id":null,"result":1}`, result: `1`},
		{data: `{"id":7,"result":{"on":true,"on":false}}`, id: 7, hasID: true, failure: `the answer is not usable: duplicate member "on"`},
	} {
		m, ok := jsonrpc.Decode([]byte(test.data))
		id, hasID := m.IntID(32)
		failure := ""
		if m.Error != nil {
			failure = m.Error.Error()
		}
		if !ok || hasID != test.hasID || hasID && id != test.id || failure != test.failure || string(m.Result) != test.result {
			t.Errorf("%s decoded as %+v, id %d %t, error %q", test.data, m, id, hasID, failure)
		}
	}
	for _, data := range []string{``, `7`, `[]`, `{"id":`, `{"id":1,"id":2,"result":{}}`, `{"id":1,"result":1,"\u0072esult":2}`, `{"method":"a","params":{"b":1,"b":2}}`} {
		if m, ok := jsonrpc.Decode([]byte(data)); ok {
			t.Errorf("%q decoded as %+v", data, m)
		}
	}
}

func TestReason(t *testing.T) {
	type entry struct {
		Text  string         `json:"text"`
		On    bool           `json:"on"`
		Count int            `json:"count"`
		Level float64        `json:"level"`
		List  []string       `json:"list"`
		Map   map[string]any `json:"map"`
	}
	for data, want := range map[string]string{
		`{"text":5}`:    "text must be a string, got a number",
		`{"on":"yes"}`:  "on must be true or false, got a string",
		`{"count":1.5}`: "count must be an integer, got number 1.5",
		`{"level":[]}`:  "level must be a number, got an array",
		`{"list":{}}`:   "list must be an array, got an object",
		`{"list":[7]}`:  "list must be a string, got a number",
		`{"map":true}`:  "map must be an object, got a boolean",
		`[]`:            "must be an object, got an array",
		`{`:             "unexpected end of JSON input",
	} {
		err := json.Unmarshal([]byte(data), &entry{})
		if err == nil {
			t.Fatalf("%s is valid", data)
		}
		if got := jsonrpc.Reason(err); got != want {
			t.Errorf("%s: got %q, want %q", data, got, want)
		}
	}
}

// TestIDs: ids wrap around, and an abandoned one is skipped until its answer arrives.
func TestIDs(t *testing.T) {
	ids := jsonrpc.IDs{Next: 3, Max: 4}
	ids.Abandon(4)
	got := []int{ids.Take(), ids.Take(), ids.Take(), ids.Take()}
	if want := []int{3, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if ids.Late(3) || !ids.Late(4) || ids.Late(4) {
		t.Error("only 4 is late, and only once")
	}
	if id := ids.Take(); id != 4 {
		t.Errorf("got %d, want 4", id)
	}
}

// TestPending: each request gets one outcome, and a late answer is dropped by its id.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p jsonrpc.Pending[int, string]
		one, two, three := p.Add(1), p.Add(2), p.Add(3)
		if _, ok := p.Only(); ok || p.Len() != 3 || one.Resolved() {
			t.Errorf("%d requests wait", p.Len())
		}
		if !p.Answer(1, "a") || p.Answer(1, "b") || p.Answer(9, "c") || !one.Resolved() {
			t.Error("an answer counts once, and only for its id")
		}
		if a, err := one.Wait(t.Context(), nil); a != "a" || err != nil {
			t.Errorf("%q, %v", a, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := two.Wait(ctx, func() { two.Forget() }); !errors.Is(err, jsonrpc.ErrNoAnswer) {
			t.Errorf("got %v", err)
		}
		if p.Answer(2, "late") || two.Forget() {
			t.Error("a late answer was delivered")
		}
		if a, err := three.Wait(ctx, func() { p.Answer(3, "last moment"); three.Forget() }); a != "last moment" || err != nil {
			t.Errorf("%q, %v", a, err)
		}
		four := p.Add(4)
		if id, ok := p.Only(); !ok || id != 4 {
			t.Errorf("%d, %t", id, ok)
		}
		broken := errors.New("broken")
		if ids := p.FailAll(broken); !slices.Equal(ids, []int{4}) || p.Len() != 0 {
			t.Errorf("failed %v", ids)
		}
		if _, err := four.Wait(t.Context(), nil); err != broken {
			t.Errorf("got %v", err)
		}
	})
}

// TestCertainty: each error says whether the call may have run.
func TestCertainty(t *testing.T) {
	call := &ferrule.Call{Device: "robot", Tool: "move", Timeout: ferrule.Duration(2 * time.Second)}
	live := t.Context()
	cancelled, cancel := context.WithCancel(live)
	cancel()
	expired, stop := context.WithDeadline(live, time.Unix(1, 0))
	defer stop()
	broken := errors.New("broken")
	for _, test := range []struct {
		err  *ferrule.Error
		code ferrule.Code
		ran  bool
		text string
	}{
		{jsonrpc.Gone(broken), ferrule.Offline, false, "the connection has ended: broken"},
		{jsonrpc.Busy(call), ferrule.Busy, false, "robot is busy with another call"},
		{jsonrpc.TooLong(call, 300, 255), ferrule.Invalid, false, "request is 300 bytes, limit for robot is 255"},
		{jsonrpc.SendError(live, call, broken, false), ferrule.Offline, false, "robot is not reachable: broken"},
		{jsonrpc.SendError(live, call, broken, true), ferrule.Unanswered, true, "connection to robot broke while sending move: broken"},
		{jsonrpc.SendError(cancelled, call, broken, false), ferrule.Cancelled, false, "cancelled before move was sent"},
		{jsonrpc.SendError(expired, call, broken, false), ferrule.Busy, false, "deadline passed before move could be sent"},
		{jsonrpc.WaitError(cancelled, call), ferrule.Cancelled, true, "cancelled while robot was running move"},
		{jsonrpc.WaitError(expired, call), ferrule.Unanswered, true, "robot did not answer move within 2s"},
		{jsonrpc.NoAnswer(call, broken), ferrule.Unanswered, true, "robot did not answer move: broken"},
		{jsonrpc.AnswerError(call, broken, true), ferrule.Refused, false, "robot refused move: broken"},
		{jsonrpc.AnswerError(call, broken, false), ferrule.Failed, true, "move failed on robot: broken"},
	} {
		if e := test.err; e.Code != test.code || e.MayHaveRun() != test.ran || e.Message != test.text {
			t.Errorf("got %s, may have run: %t, %q; want %s, %t, %q", e.Code, e.MayHaveRun(), e.Message, test.code, test.ran, test.text)
		}
	}
}

// FuzzDecode decodes anything. An error is short enough to show.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"result":{"pin":2}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"Method not found"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"f1"}}`))
	f.Add([]byte(`{"id":null,"error":"jammed","method":5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, ok := jsonrpc.Decode(data)
		if !ok {
			return
		}
		if m.Error != nil && (len(m.Error.Error()) > 300 || m.Result != nil) {
			t.Errorf("%d bytes, result %s", len(m.Error.Error()), m.Result)
		}
		if again := m.Append(nil); !json.Valid(again) {
			t.Errorf("%s became %s", data, again)
		}
	})
}
