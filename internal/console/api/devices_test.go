package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// owner is a person who may do everything, and viewer one who may only look.
var (
	owner  = ferrule.Principal{Role: ferrule.Person, Name: "maria", Scopes: ferrule.LimitTo(ferrule.ScopeAdmin)}
	viewer = ferrule.Principal{Role: ferrule.Person, Name: "guest", Scopes: ferrule.LimitTo(ferrule.ScopeRead)}
)

// latestValues are the values of devices.
type latestValues map[string][]ferrule.Latest

func (l latestValues) LatestOf(_ context.Context, devices []string) (map[string][]ferrule.Latest, error) {
	out := make(map[string][]ferrule.Latest)
	for _, id := range devices {
		if all := l[id]; all != nil {
			out[id] = all
		}
	}
	return out, nil
}

func (l latestValues) Series(context.Context, ferrule.HistoryQuery) ([]ferrule.Series, error) {
	return nil, nil
}

// plugManifest is the manifest of a plug.
var plugManifest = &ferrule.Manifest{Model: "plug", Tools: []ferrule.Tool{
	{Name: "relay", Effect: ferrule.Changes, Input: json.RawMessage(`{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]}`)},
	{Name: "measure_power", Effect: ferrule.Reads},
}}

func newDevicesAPI(t testing.TB, parts DeviceParts, devices ...*ferrule.Device) (*API, *fleet.Fleet) {
	t.Helper()
	f := fleet.New(nil)
	for _, d := range devices {
		d.State = ferrule.State(orElse(string(d.State), string(ferrule.StateOnline)))
		d.Trust = ferrule.Trust(orElse(string(d.Trust), string(ferrule.TrustAdopted)))
		f.Put(d, plugManifest, nil)
	}
	parts.Fleet = f
	a, err := New(Parts{Devices: parts})
	if err != nil {
		t.Fatal(err)
	}
	return a, f
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func ids(out DevicesOutput) (all []string) {
	for _, row := range out.Rows {
		all = append(all, row.ID)
	}
	return all
}

func list(t *testing.T, a *API, who ferrule.Principal, in DevicesInput) DevicesOutput {
	t.Helper()
	out, err := a.Devices(t.Context(), who, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDevicesSearch(t *testing.T) {
	a, _ := newDevicesAPI(t, DeviceParts{},
		&ferrule.Device{ID: "lamp", Model: "SIM-lamp"},
		&ferrule.Device{ID: "kitchen-lamp", Title: "Kitchen lamp", Node: "house", Kind: "aa01"},
		&ferrule.Device{ID: "fridge", Labels: map[string]string{"room": "kitchen"}, Node: "house"},
		&ferrule.Device{ID: "robot", Aliases: []string{"old-lamp"}, State: ferrule.StateOffline, Hub: "zig"},
		&ferrule.Device{ID: "newcomer", Trust: ferrule.TrustPending, Claims: map[string]string{"area": "Hall"}},
		&ferrule.Device{ID: "kiln", Waiting: 2},
	)
	for _, tt := range []struct {
		name string
		in   DevicesInput
		want []string
	}{
		{"all", DevicesInput{}, []string{"fridge", "kiln", "kitchen-lamp", "lamp", "newcomer", "robot"}},
		{"best first", DevicesInput{Q: "lamp"}, []string{"lamp", "kitchen-lamp", "robot"}},
		{"all words", DevicesInput{Q: "Kitchen LAMP"}, []string{"kitchen-lamp"}},
		{"by tool", DevicesInput{Q: "measure_power kitchen"}, []string{"kitchen-lamp", "fridge"}},
		{"nothing", DevicesInput{Q: "submarine"}, nil},
		{"label", DevicesInput{Label: "room=kitchen"}, []string{"fridge"}},
		{"key of a label", DevicesInput{Label: "area"}, []string{"newcomer"}},
		{"node", DevicesInput{Node: "house"}, []string{"fridge", "kitchen-lamp"}},
		{"kind", DevicesInput{Kind: "aa"}, []string{"kitchen-lamp"}},
		{"broker", DevicesInput{Hub: "zig"}, []string{"robot"}},
		{"no broker", DevicesInput{Hub: "-"}, []string{"fridge", "kiln", "kitchen-lamp", "lamp", "newcomer"}},
		{"offline", DevicesInput{State: "offline"}, []string{"robot"}},
		{"needs", DevicesInput{State: "needs"}, []string{"kiln", "newcomer"}},
		{"pending", DevicesInput{Trust: "pending"}, []string{"newcomer"}},
		{"by state", DevicesInput{Sort: "state"}, []string{"kiln", "newcomer", "robot", "fridge", "kitchen-lamp", "lamp"}},
	} {
		if got := ids(list(t, a, owner, tt.in)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	out := list(t, a, owner, DevicesInput{State: "offline"})
	if want := (DeviceCounts{All: 6, Online: 5, Needs: 2, Offline: 1}); out.Counts != want {
		t.Errorf("counts %+v, want %+v", out.Counts, want)
	}
	if _, err := a.Devices(t.Context(), owner, DevicesInput{State: "broken"}); ferrule.AsError(err).Code != ferrule.Invalid {
		t.Errorf("an unknown state: %v", err)
	}
}

func TestDevicesPages(t *testing.T) {
	var all []*ferrule.Device
	for i := range 25 {
		all = append(all, &ferrule.Device{ID: fmt.Sprintf("dev-%02d", i), Model: fmt.Sprintf("model\n%d", i%3)})
	}
	a, f := newDevicesAPI(t, DeviceParts{}, all...)
	for _, sort := range []string{"", "state", "model"} {
		var got []string
		in := DevicesInput{Limit: 10, Sort: sort}
		pages := []DevicesOutput{}
		for {
			out := list(t, a, owner, in)
			got, pages = append(got, ids(out)...), append(pages, out)
			if in.After = out.Next; out.Next == "" {
				break
			}
		}
		if slices.Sort(got); len(pages) != 3 || len(slices.Compact(got)) != 25 || pages[1].First != 11 || pages[2].Total != 25 {
			t.Fatalf("sort %q: %d pages, %d devices, %+v", sort, len(pages), len(got), pages[1].First)
		}
		in.After = *pages[2].Previous
		if back := list(t, a, owner, in); !slices.Equal(ids(back), ids(pages[1])) {
			t.Errorf("sort %q: the page before the last is %v", sort, ids(back))
		}
		if pages[0].Previous != nil {
			t.Errorf("sort %q: there is a page before the first", sort)
		}
	}
	// The device that a page ended with may vanish, and others may come.
	first := list(t, a, owner, DevicesInput{Limit: 10})
	f.Remove("dev-09")
	f.Put(&ferrule.Device{ID: "dev-09a", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, nil, nil)
	second := list(t, a, owner, DevicesInput{Limit: 10, After: first.Next})
	if got := ids(second); got[0] != "dev-09a" || got[1] != "dev-10" {
		t.Errorf("after a change: %v", got)
	}
}

func TestDevicesFold(t *testing.T) {
	a, _ := newDevicesAPI(t, DeviceParts{},
		&ferrule.Device{ID: "a", Kind: "k1"}, &ferrule.Device{ID: "b", Kind: "k2"}, &ferrule.Device{ID: "c", Kind: "k1", State: ferrule.StateOffline},
		&ferrule.Device{ID: "d"}, &ferrule.Device{ID: "e"}, &ferrule.Device{ID: "f", Kind: "k1", Trust: ferrule.TrustPending},
	)
	out := list(t, a, owner, DevicesInput{View: "kinds"})
	if got := ids(out); !slices.Equal(got, []string{"a", "b", "d", "e"}) || out.Counts.All != 6 {
		t.Fatalf("%v, %+v", got, out.Counts)
	}
	if n := out.Rows[0].Fold; n == nil || *n != (KindFold{Devices: 3, Online: 2, Offline: 1, Needs: 1}) {
		t.Errorf("%+v", n)
	}
	if out.Rows[1].Fold != nil || out.Rows[2].Fold != nil {
		t.Error("a single device is folded")
	}
}

func TestDevicesVisibility(t *testing.T) {
	code := ShownCode{Code: "482913", Device: &ferrule.Device{ID: "02:00:00:00:00:09", Address: "02:00:00:00:00:09", State: ferrule.StateOffline, Trust: ferrule.TrustPending}}
	a, _ := newDevicesAPI(t, DeviceParts{
		Codes: func() []ShownCode { return []ShownCode{code} },
		Visible: func(who ferrule.Principal) ferrule.Visibility {
			return ferrule.Visibility{
				Shows: func(_ *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool {
					return who.Scopes.Has(ferrule.ScopeFor(ferrule.CallTool, tool))
				},
				AllDevices: who.Role == ferrule.Person && who.Devices == "",
			}
		},
		Values: latestValues{"kitchen-plug": {{Signal: "relay", State: true, Sample: ferrule.Sample{Value: 1, Time: time.Now()}}}},
	}, &ferrule.Device{ID: "kitchen-plug"}, &ferrule.Device{ID: "vault"}, &ferrule.Device{ID: "newcomer", Trust: ferrule.TrustPending})

	limited, agent := viewer, ferrule.Principal{Role: ferrule.Agent, Name: "claude"}
	limited.Devices = "kitchen-*"
	for _, tt := range []struct {
		who  ferrule.Principal
		want []string
	}{
		{owner, []string{code.Device.ID, "kitchen-plug", "newcomer", "vault"}},
		{limited, []string{"kitchen-plug"}},
		{agent, []string{"kitchen-plug", "vault"}},
	} {
		if got := ids(list(t, a, tt.who, DevicesInput{})); !slices.Equal(got, tt.want) {
			t.Errorf("%v is shown %v, want %v", tt.who, got, tt.want)
		}
	}
	if _, err := a.Device(t.Context(), limited, DeviceInput{Device: "vault"}); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("a device that is hidden: %v", err)
	}
	if filters, _ := a.DeviceFilters(t.Context(), limited, NoInput{}); filters.Devices != 1 {
		t.Errorf("filters count %d devices", filters.Devices)
	}
	if row, err := a.Device(t.Context(), owner, DeviceInput{Device: code.Device.ID}); err != nil || row.Code != code.Code {
		t.Errorf("device with a code: %+v, %v", row, err)
	}

	row, _ := a.Device(t.Context(), owner, DeviceInput{Device: "kitchen-plug"})
	if row.Switch == nil || *row.Switch != (DeviceSwitch{"relay", "on", true}) || row.Tools != 2 {
		t.Errorf("owner: %+v, %d tools", row.Switch, row.Tools)
	}
	row, _ = a.Device(t.Context(), viewer, DeviceInput{Device: "kitchen-plug"})
	if row.Switch != nil || row.Tools != 1 {
		t.Errorf("viewer: %+v, %d tools", row.Switch, row.Tools)
	}
	// A tool that is hidden is not found by its name.
	if got := ids(list(t, a, viewer, DevicesInput{Q: "relay"})); len(got) != 0 {
		t.Errorf("a hidden tool finds %v", got)
	}
}

func TestDeviceOperationsAreCalls(t *testing.T) {
	var calls []string
	parts := Parts{Handle: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		calls = append(calls, fmt.Sprintf("%s %s.%s %s", call.Principal, call.Device, call.Tool, call.Args))
		return &ferrule.Result{Value: json.RawMessage(`{"device":"robot"}`)}, nil
	}}
	a, err := New(parts)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	a.Adopt(ctx, owner, AdoptInput{Device: "dev-1", Name: "robot", Kind: true, Labels: map[string]string{"room": "lab"}})
	a.Rename(ctx, owner, builtin.RenameInput{Device: "robot", Name: "arm"})
	a.Release(ctx, owner, builtin.ReleaseDeviceInput{Device: "arm", For: ferrule.Duration(time.Minute)})
	a.Retry(ctx, owner, builtin.RetryDeviceInput{Device: "arm"})
	a.Accept(ctx, owner, builtin.AcceptInput{Device: "arm", Kind: "0123456789ab"})
	a.Forget(ctx, owner, builtin.TrustInput{Device: "arm"})
	want := []string{
		`person:maria gateway.adopt_device {"device":"dev-1","name":"robot","kind":true}`,
		`person:maria gateway.label_device {"device":"robot","set":{"room":"lab"}}`,
		`person:maria gateway.rename_device {"device":"robot","name":"arm"}`,
		`person:maria gateway.release_device {"device":"arm","for":"1m0s"}`,
		`person:maria gateway.retry_device {"device":"arm"}`,
		`person:maria gateway.accept_device {"device":"arm","kind":"0123456789ab"}`,
		`person:maria gateway.forget_device {"device":"arm"}`,
	}
	if !slices.Equal(calls, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"))
	}
	// A wrong label is refused before the device is adopted.
	calls = nil
	if _, err := a.Adopt(ctx, owner, AdoptInput{Device: "dev-1", Labels: map[string]string{"Bad Key": "x"}}); ferrule.AsError(err).Code != ferrule.Invalid || calls != nil {
		t.Errorf("%v, %v", err, calls)
	}
	for _, o := range a.all {
		if o.Method == "POST" && strings.HasPrefix(o.Path, "/devices/{device}/") && !strings.Contains(o.Path, "tools") && !strings.Contains(o.Path, "prompts") && o.Scope != ferrule.ScopeAdmin {
			t.Errorf("%s needs the scope %v only", o.Path, o.Scope)
		}
	}
}

// manyDevices returns 10,000 devices of 40 Kinds.
func manyDevices(t testing.TB) (*API, *fleet.Fleet) {
	values := make(latestValues)
	var all []*ferrule.Device
	for i := range 10_000 {
		id := fmt.Sprintf("device-%05d", i)
		all = append(all, &ferrule.Device{
			ID: id, Title: "Device number " + fmt.Sprint(i), Address: fmt.Sprintf("house/0x%08x", i*7919), Hub: "house", Transport: "mqtt", Protocol: "hass",
			Kind: ferrule.Kind(fmt.Sprintf("%064x", i%40)), Model: fmt.Sprintf("model-%02d", i%40), Version: "1.0", Node: fmt.Sprintf("node-%d", i%3),
			Labels: map[string]string{"room": fmt.Sprintf("room-%03d", i%200)}, Claims: map[string]string{"area": fmt.Sprintf("Area %d", i%50)},
		})
		values[id] = []ferrule.Latest{{Signal: "temperature", Unit: "°C", Sample: ferrule.Sample{Value: 20, Time: time.Now()}}}
	}
	return newDevicesAPI(t, DeviceParts{Values: values}, all...)
}

// manyQueries are what people do with many devices.
var manyQueries = map[string]DevicesInput{
	"first page":  {},
	"later page":  {After: "\ndevice-07000"},
	"kinds":       {View: "kinds"},
	"search":      {Q: "number 4711"},
	"search tool": {Q: "measure"},
	"label":       {Label: "room=room-042"},
	"by state":    {Sort: "state"},
	"by model":    {Sort: "model", Q: "area"},
}

// TestDevicesMany checks pages of 10,000 devices, and measures one. The clock of processor time
// is coarse, so the mean of several looks counts.
func TestDevicesMany(t *testing.T) {
	a, f := manyDevices(t)
	list(t, a, owner, DevicesInput{}) // sorts
	const looks = 20
	slowest := time.Duration(0)
	for name, in := range manyQueries {
		var used time.Duration
		for range looks {
			f.Put(&ferrule.Device{ID: "device-00000", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, nil, nil) // a change between two looks
			var out DevicesOutput
			used += cpuTime(t, func() { out = list(t, a, owner, in) })
			if len(out.Rows) == 0 {
				t.Errorf("%s: no rows", name)
			}
		}
		t.Logf("%s: %v", name, used/looks)
		slowest = max(slowest, used/looks)
	}
	figure.AtMost(t, "processor time of a page of 10,000 devices", slowest, 30*time.Millisecond)
	if out := list(t, a, owner, DevicesInput{Q: "device-04711"}); len(out.Rows) != 1 || out.Rows[0].Values[0].Value != 20 {
		t.Errorf("one of many: %+v", out.Rows)
	}
}

func BenchmarkDevices(b *testing.B) {
	a, _ := manyDevices(b)
	for name, in := range manyQueries {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := a.Devices(b.Context(), owner, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
