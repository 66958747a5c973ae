package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

type noJournal struct{}

func (noJournal) Append(ferrule.Entry, bool) error { return nil }

// gateway is the path of an agent's call, with three boards, one of them pending.
func gateway(t *testing.T) (road ferrule.Handler, c *catalog.Catalog) {
	t.Helper()
	c = catalog.New(catalog.DefaultConfig())
	f := fleet.New(nil)
	f.WatchDevices(c)
	road = pipeline.New(pipeline.Parts{
		Config: pipeline.DefaultConfig(), Journal: noJournal{}, Fleet: f, Log: slog.New(slog.DiscardHandler),
	}).Handle
	b := newSet(t, builtin.ListDevices(f, nil), builtin.DescribeDevice(f, nil), builtin.DeviceState(f, nil), builtin.FindDevices(seenByAll(c.All())), builtin.FindTools(seenByAll(c.All())),
		builtin.DescribeTool(seenByAll(c.All())), builtin.CallMany(road), builtin.Status("1", func(ferrule.Principal) builtin.StatusOutput {
			n := c.Counts()
			_, shape := c.List()
			return builtin.StatusOutput{Online: n.Online, Offline: n.Offline, Released: n.Released, Pending: n.Pending, Kinds: n.Kinds, List: string(shape)}
		}))
	f.PutBuiltin(b.Device(), b.Manifest(), b.Handle)
	m := &ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "self.look", Effect: ferrule.Reads}}}
	for _, id := range []string{"a", "b", "stranger"} {
		dev := &ferrule.Device{ID: id, Kind: "0123456789ab", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
		if id == "stranger" {
			dev.Trust = ferrule.TrustPending
		}
		f.Put(dev, m, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			if id == "stranger" {
				t.Error("a device that is held was called")
			}
			return &ferrule.Result{Value: json.RawMessage(`"seen"`)}, nil
		})
	}
	return road, c
}

// TestPendingDevices checks that agents cannot see a pending device, except in counts.
func TestPendingDevices(t *testing.T) {
	road, c := gateway(t)
	for _, test := range []struct{ name, args, want string }{
		{"gateway__list_devices", `{}`, `"total":2`},
		{"gateway__describe_device", `{"device":"stranger"}`, "not_found"},
		{"gateway__device_state", `{"device":"stranger"}`, "not_found"},
		{"gateway__device_state", `{"device":"a"}`, `"state":"online"`},
		{"gateway__find_devices", `{}`, `"total":2`},
		{"gateway__find_devices", `{"query":"stranger"}`, `"total":0`},
		{"gateway__find_tools", `{"query":"board"}`, `"devices":2`},
		{"gateway__find_tools", `{"device":"stranger"}`, `"total":0`},
		{"gateway__find_tools", `{"query":"stranger"}`, `"total":0`},
		{"gateway__describe_tool", `{"name":"stranger__self_look"}`, "not_found"},
		{"gateway__describe_tool", `{"name":"board--012345__self_look"}`, `"devices":["a","b"],"count":2`},
		{"gateway__call_many", `{"tool":"self.look","devices":["a","stranger","b"]}`, `"succeeded":2,"failed":1`},
		{"gateway__call_tool", `{"name":"stranger__self_look"}`, "not_found"},
		{"board--012345__self_look", `{"device":"stranger"}`, "not_found"},
		{"board--012345__self_look", `{"device":"a"}`, `"seen"`},
		{"stranger__self_look", `{}`, "not_found"},
		{"gateway__status", `{}`, `"pending":1`},
	} {
		var got string
		device, tool, rest, err := c.Resolve(test.name, json.RawMessage(test.args))
		if err == nil {
			var result *ferrule.Result
			result, err = road(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "robby"}, Device: device, Tool: tool, Args: rest})
			if err == nil {
				got = string(result.Value)
			}
		}
		if err != nil {
			got = fmt.Sprint(ferrule.AsError(err).Code)
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s %s: %s, want %s (%v)", test.name, test.args, got, test.want, err)
		}
		if strings.Contains(got, "stranger") && tool != "call_many" { // which only says what it was asked
			t.Errorf("%s %s mentions it: %s", test.name, test.args, got)
		}
	}
}
