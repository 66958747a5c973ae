package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// pastAPI returns an API with the device pump, which viewers are shown without the tool
// secret and the resource secret://x.
func pastAPI(t *testing.T, past Past) *API {
	t.Helper()
	dev := &ferrule.Device{ID: "pump", State: ferrule.StateOnline}
	manifest := &ferrule.Manifest{
		Tools:      []ferrule.Tool{{Name: "run"}, {Name: "secret"}},
		Resources:  []ferrule.Resource{{URI: "log://x"}, {URI: "secret://x"}},
		Operations: []ferrule.Operation{ferrule.ReadResource},
	}
	a, err := New(Parts{
		Handle: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf(`{"device":%q}`, string(call.Principal.Role)+" "+call.Tool+" "+string(call.Operation)))}, nil
		},
		Find: func(who ferrule.Principal, id string) (Found, error) {
			if id != "pump" {
				return Found{}, ferrule.UnknownDevice(id)
			}
			seen := ferrule.Visibility{AllDevices: true}
			if !who.Scopes.Has(ferrule.ScopeAdmin) {
				seen.Shows = func(_ *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool {
					return !strings.HasPrefix(tool.Name, "secret")
				}
			}
			return Found{Device: dev, Manifest: manifest, Seen: seen}, nil
		},
		Past: past, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type callsOf []ferrule.Entry

func (c callsOf) Calls(context.Context, string, time.Time, time.Time) ([]ferrule.Entry, error) {
	return c, errors.New("a node is silent")
}

// TestPastRoles checks who may read what about the past of a device.
func TestPastRoles(t *testing.T) {
	events := []ferrule.Event{{Type: ferrule.Appeared, Device: "pump", Node: "a"}, {Type: ferrule.Notified, Device: "pump", Node: "a", Method: "door", Params: json.RawMessage(`{"open":true}`)}}
	h := pastAPI(t, Past{
		Calls:  callsOf{{Tool: "run"}, {Tool: "secret", MayHaveRun: true}},
		Events: func(context.Context, string, int) ([]ferrule.Event, error) { return events, nil },
		Trace: func(_ context.Context, _ string, fn func(ferrule.Trace)) error {
			fn(ferrule.Trace{Direction: "in", Data: "hello"})
			return nil
		},
	}).Handler(asRole)
	for _, c := range []struct {
		path, role string
		status     int
		want, not  string
	}{
		{"pump/latest", "viewer", 200, `"device":"person latest "`, ""},
		{"pump/history?since=1h&signals=a&signals=b&points=10", "viewer", 200, `"device":"person history "`, ""},
		{"pump/history?points=many", "viewer", 400, "points", ""},
		{"pump/calls", "viewer", 200, `"tool":"run"`, "secret"},
		{"pump/calls", "owner", 200, `"tool":"secret","may_have_run":true`, ""},
		{"pump/calls", "owner", 200, "a node is silent", ""},
		{"pump/calls?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "owner", 400, "before", ""},
		{"pump/events", "viewer", 200, `"type":"notified"`, ""},
		{"pump/events?limit=5000", "viewer", 400, "limit", ""},
		{"pump/resources", "viewer", 200, "log://x", "secret"},
		{"pump/resources", "owner", 200, "secret://x", ""},
		{"pump/resources/read?uri=log://x", "viewer", 200, "", ""},
		{"pump/resources/read?uri=", "viewer", 400, "uri", ""},
		{"pump/trace", "viewer", 403, "scope", "hello"},
		{"pump/trace", "operator", 403, "scope", "hello"},
		{"pump/trace?seconds=1", "owner", 200, `"data":"hello"`, ""},
		{"pump/trace?seconds=100", "owner", 400, "seconds", ""},
		{"other/calls", "owner", 404, "no device", ""},
		{"other/events", "owner", 404, "no device", ""},
		{"other/resources", "owner", 404, "no device", ""},
		{"other/trace", "owner", 404, "no device", ""},
		{"pump/events", "", 401, "", "notified"},
	} {
		req := httptest.NewRequest(http.MethodGet, Prefix+"/devices/"+c.path, nil)
		req.Header.Set("Role", c.role)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		body := w.Body.String()
		if w.Code != c.status || !strings.Contains(body, c.want) || c.not != "" && strings.Contains(body, c.not) {
			t.Errorf("%s as %q: %d %s, want %d with %q without %q", c.path, c.role, w.Code, body, c.status, c.want, c.not)
		}
	}
}

// TestEventsNewestFirst checks the order of events, and the error without a store.
func TestEventsNewestFirst(t *testing.T) {
	owner := ferrule.RoleOwner.LoggedIn("anna")
	a := pastAPI(t, Past{Events: func(_ context.Context, _ string, limit int) ([]ferrule.Event, error) {
		if limit != defaultEvents {
			return nil, fmt.Errorf("limit is %d", limit)
		}
		return []ferrule.Event{{Reason: "first"}, {Reason: "second"}}, nil
	}})
	out, err := a.Events(t.Context(), owner, EventsInput{Device: "pump"})
	if err != nil || len(out.Events) != 2 || out.Events[0].Reason != "second" {
		t.Error(out, err)
	}
	if _, err := a.Events(t.Context(), owner, EventsInput{Device: "pump", Limit: 7}); ferrule.AsError(err).Code != ferrule.Offline {
		t.Error(err)
	}
}

// TestTraceIsBounded checks that a trace ends by itself, and keeps only some frames.
func TestTraceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := pastAPI(t, Past{Trace: func(ctx context.Context, _ string, fn func(ferrule.Trace)) error {
			for range maxFrames + 5 {
				fn(ferrule.Trace{})
			}
			<-ctx.Done()
			return nil
		}})
		start := time.Now()
		out, err := a.Trace(t.Context(), ferrule.RoleOwner.LoggedIn("anna"), TraceInput{Device: "pump"})
		if err != nil || len(out.Frames) != maxFrames || out.Dropped != 5 {
			t.Error(len(out.Frames), out.Dropped, err)
		}
		if took := time.Since(start); took != defaultTraceSeconds*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
