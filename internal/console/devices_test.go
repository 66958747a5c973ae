package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// deviceRig is a console with devices, values and a person.
type deviceRig struct {
	*Console
	fleet *fleet.Fleet
	who   ferrule.Principal
	// calls are the calls in the pipeline.
	calls []string

	mu      sync.Mutex
	latest  map[string][]ferrule.Latest
	samples map[string]map[int]func(ferrule.Reading)
	next    int
}

var listOwner = ferrule.Principal{Role: ferrule.Person, Name: "maria", Scopes: ferrule.LimitTo(ferrule.ScopeAdmin)}

func newDeviceRig(t testing.TB, devices ...*ferrule.Device) *deviceRig {
	t.Helper()
	r := &deviceRig{fleet: fleet.New(nil), who: listOwner, latest: make(map[string][]ferrule.Latest), samples: make(map[string]map[int]func(ferrule.Reading))}
	for _, d := range devices {
		r.put(d)
	}
	r.Console = newTestConsole(t, api.Parts{
		Handle: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls = append(r.calls, fmt.Sprintf("%s %s %s", call.Principal, call.Tool, call.Args))
			return &ferrule.Result{Value: json.RawMessage(`{"device":"x","approvals":[]}`)}, nil
		},
		Devices: api.DeviceParts{Fleet: r.fleet, Values: r},
	}, Parts{People: r.people(), Fleet: r.fleet, Streams: r})
	return r
}

func (r *deviceRig) people() People { return loggedIn(func() ferrule.Principal { return r.who }) }

func (r *deviceRig) put(d *ferrule.Device) {
	if d.State == "" {
		d.State = ferrule.StateOnline
	}
	if d.Trust == "" {
		d.Trust = ferrule.TrustAdopted
	}
	r.fleet.Put(d, plug, nil)
}

var plug = &ferrule.Manifest{Model: "plug", Tools: []ferrule.Tool{
	{Name: "relay", Effect: ferrule.Changes, Input: json.RawMessage(`{"properties":{"on":{"type":"boolean"}},"required":["on"]}`)},
}}

// The rig is the streams and the records of the console.
func (r *deviceRig) Listen(func(ferrule.Event), ...ferrule.EventType) (stop func()) { return func() {} }

func (r *deviceRig) Samples(device, _ string, fn func(ferrule.Reading)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.samples[device] == nil {
		r.samples[device] = make(map[int]func(ferrule.Reading))
	}
	r.next++
	n := r.next
	r.samples[device][n] = fn
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.samples[device], n); len(r.samples[device]) == 0 {
			delete(r.samples, device)
		}
	}
}

func (r *deviceRig) LatestOf(_ context.Context, devices []string) (map[string][]ferrule.Latest, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]ferrule.Latest)
	for _, id := range devices {
		out[id] = r.latest[id]
	}
	return out, nil
}

func (r *deviceRig) Series(context.Context, ferrule.HistoryQuery) ([]ferrule.Series, error) {
	return nil, nil
}

// following returns how many devices are followed.
func (r *deviceRig) following() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.samples)
}

// measure sends a new value of a device.
func (r *deviceRig) measure(device, signal string, value float64) {
	r.mu.Lock()
	var fns []func(ferrule.Reading)
	for _, fn := range r.samples[device] {
		fns = append(fns, fn)
	}
	r.mu.Unlock()
	for _, fn := range fns {
		fn(ferrule.Reading{Device: device, Batches: []ferrule.SampleBatch{{Signal: signal, Samples: []ferrule.Sample{{Time: time.Now(), Value: value}}}}})
	}
}

func (r *deviceRig) get(t testing.TB, path string, headers ...string) string {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func contains(t testing.TB, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%.4000s", want, text)
		}
	}
}

func lacks(t testing.TB, text string, all ...string) {
	t.Helper()
	for _, unwanted := range all {
		if strings.Contains(text, unwanted) {
			t.Errorf("there is %q", unwanted)
		}
	}
}

func TestDevicesPageCards(t *testing.T) {
	r := newDeviceRig(t,
		&ferrule.Device{ID: "arm", Model: "arm-6dof", Version: "2.4.1", Transport: "serial"},
		&ferrule.Device{ID: "psu", State: ferrule.StateOffline, Reason: "unplugged", Since: time.Now()},
		&ferrule.Device{ID: "kiln", Waiting: 3},
		&ferrule.Device{ID: "lamp", Hub: "house", Transport: "mqtt", Node: "attic"},
		&ferrule.Device{ID: "blind", Hub: "flat", Transport: "homeassistant"},
		&ferrule.Device{ID: "toy-a41c", Trust: ferrule.TrustPending, Hub: "house", Claims: map[string]string{"area": "Hall"}},
	)
	now := time.Now()
	r.latest["arm"] = []ferrule.Latest{{Signal: "motor_current", Unit: "A", Sample: ferrule.Sample{Value: 1.84, Time: now}}}
	r.latest["lamp"] = []ferrule.Latest{{Signal: "relay", State: true, Sample: ferrule.Sample{Value: 1, Time: now}}}
	body := r.get(t, "/devices")
	contains(t, body,
		"arm-6dof 2.4.1 · USB", "Motor current", "1.84<small> A", // a card with its value
		"unplugged, since", "Retry", `class="card dev off"`,
		"kiln says something different than before", "3 changes wait",
		"New device toy-a41c", `name="name" size="16" maxlength="32" placeholder="Name" value="toy-a41c"`, "area=Hall",
		"1 device behind one broker, on attic", "1 device behind one Home Assistant", `data-switch="lamp"`, `data-argument="on" checked`,
		`Needs you <span class="n">2</span>`, `Offline <span class="n">1</span>`,
	)
	lacks(t, body, `id="d-toy-a41c"`, "<noscript><button class=\"btn\">Filter</button></noscript><style", "style=")

	empty := newDeviceRig(t)
	contains(t, empty.get(t, "/devices"), "No device yet", "/devices/add")
	contains(t, r.get(t, "/devices?q=submarine"), "No device matches")
	contains(t, r.get(t, "/devices?state=offline"), `id="d-psu"`)
	lacks(t, r.get(t, "/devices?state=offline"), `id="d-arm"`)
	if part := r.get(t, "/devices?q=arm", "HX-Request", "true"); strings.Contains(part, "<html") || !strings.Contains(part, `id="devices"`) {
		t.Errorf("a part of the page is\n%.300s", part)
	}
	contains(t, r.get(t, "/devices?q=arm", "HX-Request", "true", "HX-History-Restore-Request", "true"), "<html")
	contains(t, r.get(t, "/devices/add"), "ferrule up --serial auto", "New device toy-a41c", "data-copy")
}

func TestDevicesPageRoles(t *testing.T) {
	r := newDeviceRig(t, &ferrule.Device{ID: "newcomer", Trust: ferrule.TrustPending}, &ferrule.Device{ID: "psu", State: ferrule.StateOffline}, &ferrule.Device{ID: "lamp", Hub: "house"})
	r.latest["lamp"] = []ferrule.Latest{{Signal: "relay", State: true, Sample: ferrule.Sample{Value: 1, Time: time.Now()}}}
	contains(t, r.get(t, "/devices"), `action="/devices/adopt"`, `action="/devices/retry"`, `data-switch="lamp"`)
	r.who.Scopes = ferrule.LimitTo(ferrule.ScopeRead)
	body := r.get(t, "/devices")
	contains(t, body, "An owner can adopt it.")
	lacks(t, body, `action="/devices/adopt"`, `action="/devices/retry"`, "data-switch")
}

func TestDevicesPageAdopt(t *testing.T) {
	r := newDeviceRig(t, &ferrule.Device{ID: "dev-1", Trust: ferrule.TrustPending})
	post := func(form url.Values) int {
		req := httptest.NewRequest(http.MethodPost, "/devices/adopt", strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		return w.Code
	}
	form := url.Values{"device": {"dev-1"}, "name": {"robot"}, "labels": {"room=lab, guarded"}}
	if code := post(form); code != http.StatusForbidden || r.calls != nil {
		t.Fatalf("without the token of the session: %d, %v", code, r.calls)
	}
	form.Set("csrf", "token")
	if code := post(form); code != http.StatusSeeOther {
		t.Fatalf("status %d", code)
	}
	if want := `person:maria adopt_device {"device":"dev-1","name":"robot"}`; r.calls[0] != want || !strings.Contains(r.calls[1], `"guarded":"yes"`) {
		t.Errorf("calls %q", r.calls)
	}
	// A toy is adopted by the code that it shows.
	r.calls = nil
	form.Set("code", "482913")
	form.Set("labels", "Not a label")
	if code := post(form); code != http.StatusBadRequest || r.calls != nil {
		t.Errorf("with a label that is not valid: %d, %v", code, r.calls)
	}
	form.Set("labels", "")
	if post(form); r.calls[0] != `person:maria adopt_device {"device":"482913","name":"robot"}` {
		t.Errorf("calls %q", r.calls)
	}
}

// hostile is what a device may say in any text.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>'`

func TestDevicesPageHostile(t *testing.T) {
	bad := func(id, hub string) *ferrule.Device {
		return &ferrule.Device{
			ID: id, Title: hostile, Model: hostile, Version: hostile, Address: hostile, Transport: hostile, Protocol: hostile, Node: hostile, Reason: hostile, Hub: hub,
			Kind: ferrule.Kind(hostile), Notes: []string{hostile}, Labels: map[string]string{"room": hostile}, Claims: map[string]string{"area": hostile},
		}
	}
	card, row, fresh, changed := bad("card", ""), bad("row", hostile), bad("fresh", hostile), bad("changed", "")
	fresh.Trust, changed.Waiting, card.State = ferrule.TrustPending, 1, ferrule.StateOffline
	r := newDeviceRig(t, card, row, fresh, changed)
	for _, id := range []string{"card", "row"} {
		r.latest[id] = []ferrule.Latest{{Signal: hostile, Unit: hostile, Sample: ferrule.Sample{Value: 1e300, Time: time.Now()}}}
	}
	for _, path := range []string{"/devices", "/devices?view=table", "/devices?q=" + url.QueryEscape(hostile), "/devices?label=" + url.QueryEscape(hostile), "/devices?hub=" + url.QueryEscape(hostile), "/devices?state=needs", "/devices/add"} {
		body := r.get(t, path)
		lacks(t, body, "<script>alert", "<img src=x")
		if path != "/devices/add" {
			contains(t, body, "&lt;script&gt;")
		}
	}
}

func TestDevicesPageTable(t *testing.T) {
	var all []*ferrule.Device
	for i := range 10_000 {
		all = append(all, &ferrule.Device{ID: fmt.Sprintf("device-%05d", i), Kind: ferrule.Kind(fmt.Sprintf("%064x", i%150)), Model: fmt.Sprintf("model-%03d", i%150), Hub: "house", Since: time.Now()})
	}
	r := newDeviceRig(t, all...)
	body := r.get(t, "/devices")
	contains(t, body, "model-000", "67 devices", "Show every device", "1 to 100 of 150", `<span aria-hidden="true">10k</span>`, ">10,000<")
	if n := strings.Count(body, "<tr>"); n != 101 {
		t.Errorf("%d rows", n)
	}
	next := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(body)
	if next == nil {
		t.Fatal("there is no next page")
	}
	contains(t, r.get(t, strings.ReplaceAll(next[1], "&amp;", "&")), "101 to 150 of 150", `rel="prev"`)
	contains(t, r.get(t, "/devices?every=yes"), "1 to 100 of 10,000", `id="s-device-00099"`)
	r.put(&ferrule.Device{ID: "device-00003", Labels: map[string]string{"pinned": "yes"}})
	contains(t, r.get(t, "/devices?every=yes"), `id="d-pinned:device-00003"`, `id="s-device-00003"`)
	contains(t, r.get(t, "/devices?q=device-04711"), `href="/devices/device-04711"`, "1 to 1 of 1")
	contains(t, r.get(t, "/devices?kind="+fmt.Sprintf("%064x", 7)), "1 to 67 of 67")

	best := time.Hour
	for range 3 {
		start := time.Now()
		r.get(t, "/devices?every=yes&q=device", "HX-Request", "true")
		best = min(best, time.Since(start))
	}
	figure.AtMost(t, "page of 10,000 devices", best, 200*time.Millisecond)
}

// liveList is an open stream of a list.
type liveList struct {
	mu   sync.Mutex
	text strings.Builder
}

// openList opens the live updates of a list, until the test ends or stop is called.
func openList(t *testing.T, r *deviceRig, path string) (l *liveList, stop func()) {
	server := httptest.NewServer(r)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	l = &liveList{}
	go func() {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var html string
			if ok && json.Unmarshal([]byte(data), &html) == nil {
				l.mu.Lock()
				l.text.WriteString(html)
				l.mu.Unlock()
			}
		}
	}()
	stop = func() { cancel(); resp.Body.Close(); server.Close() }
	t.Cleanup(stop)
	return l, stop
}

func (l *liveList) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func TestDevicesLive(t *testing.T) {
	r := newDeviceRig(t, &ferrule.Device{ID: "arm"}, &ferrule.Device{ID: "lamp", Hub: "house"}, &ferrule.Device{ID: "psu", State: ferrule.StateOffline})
	r.latest["arm"] = []ferrule.Latest{{Signal: "current", Unit: "A", Sample: ferrule.Sample{Value: 1.5, Time: time.Now()}}}
	r.latest["lamp"] = []ferrule.Latest{{Signal: "relay", State: true, Sample: ferrule.Sample{Value: 0, Time: time.Now()}}}
	at := fmt.Sprint(time.Now().UnixMilli())
	page, stop := openList(t, r, "/live/devices?at="+at)
	other, _ := openList(t, r, "/live/devices?q=arm&at="+at)
	wait.For(t, "the lists follow three devices", func() bool { return r.following() == 3 })

	r.measure("arm", "current", 2.75)
	wait.For(t, "the value of arm", func() bool { return page.has("2.75<small> A") && other.has("2.75<small> A") })
	r.measure("lamp", "relay", 1)
	wait.For(t, "the switch of lamp", func() bool {
		return page.has(`<span id="v-lamp">On</span>`) && page.has(`id="w-lamp"`) && page.has(" checked")
	})
	if other.has("v-lamp") {
		t.Error("a list got a device that it does not show")
	}
	// A device may report a signal later that it did not have before.
	r.mu.Lock()
	r.latest["psu"] = []ferrule.Latest{{Signal: "output", Unit: "V", Sample: ferrule.Sample{Value: 12.02, Time: time.Now()}}}
	r.mu.Unlock()
	r.measure("psu", "output", 12.02)
	wait.For(t, "the first value of psu", func() bool { return page.has("12.02<small> V") })
	r.put(&ferrule.Device{ID: "psu", Since: time.Now()})
	wait.For(t, "psu is online", func() bool { return page.has(`id="d-psu"`) })
	r.put(&ferrule.Device{ID: "newcomer", Trust: ferrule.TrustPending})
	wait.For(t, "the new device", func() bool { return page.has("New device newcomer") && page.has(`Needs you <span class="n">1</span>`) })
	r.put(&ferrule.Device{ID: "second-arm"})
	wait.For(t, "the new card", func() bool { return page.has(`id="devices-list"`) && page.has(`id="d-second-arm"`) })
	wait.For(t, "the new card is followed", func() bool { return r.following() == 4 })

	stop() // the other list still shows two of them
	wait.For(t, "closed list left its devices", func() bool { return r.following() == 2 })
}

// TestDevicesLiveGap checks that a page is told of a device that came after the page was drawn
// and before its stream was open.
func TestDevicesLiveGap(t *testing.T) {
	r := newDeviceRig(t, &ferrule.Device{ID: "arm"})
	drawn := httptest.NewRecorder()
	r.ServeHTTP(drawn, httptest.NewRequest(http.MethodGet, "/devices", nil))
	_, after, _ := strings.Cut(drawn.Body.String(), `data-live-url="`)
	path, _, _ := strings.Cut(after, `"`)
	path = strings.ReplaceAll(path, "&amp;", "&")
	same, _ := openList(t, r, path)
	r.put(&ferrule.Device{ID: "toy", Trust: ferrule.TrustPending})
	r.put(&ferrule.Device{ID: "second"})
	page, _ := openList(t, r, path)
	wait.For(t, "the new devices", func() bool { return page.has("New device toy") && page.has(`id="d-second"`) })
	wait.For(t, "the new devices", func() bool { return same.has("New device toy") && same.has(`id="d-second"`) })
}

// TestDevicesLiveRoles checks that what one person may do does not show on another's page.
func TestDevicesLiveRoles(t *testing.T) {
	r := newDeviceRig(t, &ferrule.Device{ID: "lamp", Hub: "house"})
	r.latest["lamp"] = []ferrule.Latest{{Signal: "relay", State: true, Sample: ferrule.Sample{Value: 0, Time: time.Now()}}}
	at := fmt.Sprint(time.Now().UnixMilli())
	own, _ := openList(t, r, "/live/devices?at="+at)
	wait.For(t, "the owner's list", func() bool { return r.following() == 1 })
	r.who.Scopes = ferrule.LimitTo(ferrule.ScopeRead)
	other, _ := openList(t, r, "/live/devices?at="+at)
	wait.For(t, "the viewer's list", func() bool {
		r.listed.mu.Lock()
		defer r.listed.mu.Unlock()
		return r.listed.devices["lamp"].shown == 2
	})
	r.measure("lamp", "relay", 1)
	r.put(&ferrule.Device{ID: "lamp", Hub: "house", Since: time.Now()})
	wait.For(t, "the lamp is on", func() bool {
		return own.has(`<span id="v-lamp">On</span>`) && other.has(`<span id="v-lamp">On</span>`) && own.has(`id="w-lamp"`) && other.has(`id="w-lamp"`)
	})
	if !own.has("data-switch") || other.has("data-switch") {
		t.Errorf("the owner has a switch: %v, the viewer: %v", own.has("data-switch"), other.has("data-switch"))
	}
}

// TestDevicesLiveShared checks that lists share what they follow and draw.
func TestDevicesLiveShared(t *testing.T) {
	r := newDeviceRig(t, &ferrule.Device{ID: "arm"})
	r.latest["arm"] = []ferrule.Latest{{Signal: "current", Unit: "A", Sample: ferrule.Sample{Value: 1, Time: time.Now()}}}
	row, _ := r.api.Device(t.Context(), r.who, api.DeviceInput{Device: "arm"})
	for range 200 {
		r.listed.follow(r.Console, row)
	}
	r.mu.Lock()
	streams := len(r.samples["arm"])
	r.mu.Unlock()
	if streams != 1 {
		t.Errorf("200 lists follow %d streams of one device", streams)
	}
	r.measure("arm", "current", 2)
	first, late, err := r.listed.draw(t.Context(), r.Console, deviceItem{DeviceRow: row}, "device-values")
	if err != nil || late || !strings.Contains(string(first), "2<small> A") {
		t.Fatalf("%s, %v, %v", first, late, err)
	}
	r.measure("arm", "current", 3)
	second, late, _ := r.listed.draw(t.Context(), r.Console, deviceItem{DeviceRow: row}, "device-values")
	if second != first || !late {
		t.Errorf("values are drawn twice within %v, or the last one would be lost: %v", updateEvery, late)
	}
	for range 200 {
		r.listed.leave("arm")
	}
	if n := r.following(); n != 0 {
		t.Errorf("%d devices are followed by nobody", n)
	}
}

func TestDeviceIcon(t *testing.T) {
	for _, tt := range []struct{ protocol, model, id, want string }{
		{"xiaozhi", "bread-compact", "x", "toy"}, {"hass", "SIM-lock", "front-door", "lock"}, {"hass", "Contact", "front-door", "door"},
		{"mcpu", "arm-6dof 2", "a", "arm"}, {"hass", "smoke alarm", "hall", "devices"}, {"", "", "kitchen-lamp", "lamp"},
	} {
		if got := deviceIcon(tt.protocol, tt.model, tt.id); got != tt.want {
			t.Errorf("%v: %s", tt, got)
		}
	}
}

// busyStreams reports a reading while somebody subscribes, and waits until it was heard, as
// the cluster does.
type busyStreams struct{ Streams }

func (busyStreams) Samples(device, _ string, fn func(ferrule.Reading)) (stop func()) {
	heard := make(chan struct{})
	go func() {
		fn(ferrule.Reading{Device: device})
		close(heard)
	}()
	<-heard
	return func() {}
}

// TestFollowWhileMeasuring checks that a list can be opened while its devices measure.
func TestFollowWhileMeasuring(t *testing.T) {
	r := newDeviceRig(t)
	r.parts.Streams = busyStreams{}
	r.listed.follow(r.Console, api.DeviceRow{ID: "plug"})
	r.listed.leave("plug")
	if len(r.listed.devices) != 0 {
		t.Errorf("got %v", r.listed.devices)
	}
}

// TestSignalName checks names that do not begin with an ASCII letter.
func TestSignalName(t *testing.T) {
	for in, want := range map[string]string{"soil_moisture": "Soil moisture", "öl-druck": "Öl druck", "5v": "5v", "_": "_", "": ""} {
		if got := signalName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	values := []api.DeviceValue{{Signal: "relay", State: true, Value: 1}, {Signal: "öl", Value: 3}}
	if got, want := valueWords(values), "On, öl 3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestListItemReturns checks that an item that was gone is sent again, even if it is the same.
func TestListItemReturns(t *testing.T) {
	out := newUpdates()
	send := func(ids ...string) string {
		var items []item
		for _, id := range ids {
			items = append(items, item{id, template.HTML(`<p id="` + id + `"></p>`)})
		}
		if err := out.list("things", "as-is", items); err != nil {
			t.Fatal(err)
		}
		return string(out.take())
	}
	contains(t, send("a", "b"), `id=\"a`, `id=\"b`, `["a","b"]`)
	if got := send("a", "b"); got != "" {
		t.Errorf("nothing has changed: %s", got)
	}
	lacks(t, send("a"), `id=\"a`)
	text := send("a", "b")
	contains(t, text, `id=\"b`)
	lacks(t, text, `id=\"a`)
}
