package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	unescape "html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// evil is a text of a device that wants to be more than a text.
const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>`

// pastRig is a console with the device board, which has measured, reported and said
// something.
type pastRig struct {
	*Console
	dev      *ferrule.Device
	manifest *ferrule.Manifest
	role     ferrule.PersonRole
	set      *builtin.Set
	journal  *journalCalls

	mu      sync.Mutex
	series  []ferrule.Series
	read    []ferrule.Content
	events  []ferrule.Event
	calls   []ferrule.Entry
	samples map[int]func(ferrule.Reading)
	hears   map[int]func(ferrule.Event)
	traces  map[int]func(ferrule.Trace)
	next    int
}

func newPastRig(t *testing.T) *pastRig {
	t.Helper()
	r := &pastRig{
		dev:      &ferrule.Device{ID: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		manifest: &ferrule.Manifest{Model: "board", Resources: []ferrule.Resource{{URI: "log://x", Title: evil, MIME: evil, Text: evil}, {URI: "cam://{n}", Template: true}}},
		role:     ferrule.RoleOwner,
		journal:  &journalCalls{},
		samples:  make(map[int]func(ferrule.Reading)), hears: make(map[int]func(ferrule.Event)), traces: make(map[int]func(ferrule.Trace)),
	}
	var err error
	if r.set, err = builtin.New("1", builtin.Latest(r, nil, r), builtin.History(r, nil, r)); err != nil {
		t.Fatal(err)
	}
	r.Console = newTestConsole(t, api.Parts{
		Handle: r.handle, Calls: r.journal, Devices: api.DeviceParts{Fleet: r},
		Find: func(_ ferrule.Principal, id string) (api.Found, error) {
			if id != r.dev.ID {
				return api.Found{}, ferrule.UnknownDevice(id)
			}
			return api.Found{Device: r.dev, Manifest: r.manifest}, nil
		},
		Past: api.Past{Records: r, Calls: r, Trace: r.trace, Events: func(context.Context, string, int) ([]ferrule.Event, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.events, nil
		}},
	}, Parts{People: loggedIn(func() ferrule.Principal { return r.role.LoggedIn("anna") }), Fleet: r, Streams: r})
	return r
}

func (r *pastRig) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	if call.Operation == ferrule.ReadResource {
		return &ferrule.Result{Content: r.read}, nil
	}
	return r.set.Handle(ctx, call)
}

// The rig is the fleet, the streams and the records of the console.
func (r *pastRig) WatchDevices(ferrule.DeviceWatcher) (stop func()) { return func() {} }
func (r *pastRig) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	return r.dev, r.manifest, id == r.dev.ID
}

func follow[F any](r *pastRig, all map[int]F, fn F) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	n := r.next
	all[n] = fn
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(all, n)
	}
}

func (r *pastRig) Listen(fn func(ferrule.Event), _ ...ferrule.EventType) (stop func()) {
	return follow(r, r.hears, fn)
}

func (r *pastRig) Samples(_, _ string, fn func(ferrule.Reading)) (stop func()) {
	return follow(r, r.samples, fn)
}

func (r *pastRig) trace(ctx context.Context, _ string, fn func(ferrule.Trace)) error {
	defer follow(r, r.traces, fn)()
	<-ctx.Done()
	return nil
}

func (r *pastRig) Calls(context.Context, string, time.Time, time.Time) ([]ferrule.Entry, error) {
	return r.calls, nil
}

func (r *pastRig) Latest(context.Context, string) (all []ferrule.Latest, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.series {
		all = append(all, ferrule.Latest{Signal: s.Signal, Unit: s.Unit, Sample: *s.Last})
	}
	return all, nil
}

func (r *pastRig) Series(_ context.Context, q ferrule.HistoryQuery) ([]ferrule.Series, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.series, nil
}

// measure adds a series with one sample each second until now.
func (r *pastRig) measure(signal, unit string, values int, gaps ...ferrule.Gap) {
	s := ferrule.Series{Signal: signal, Unit: unit, Resolution: ferrule.Raw, Gaps: gaps}
	start := time.Now().Add(-time.Duration(values) * time.Second)
	for i := range values {
		at := start.Add(time.Duration(i) * time.Second)
		if len(gaps) > 0 && at.After(gaps[0].From) && at.Before(gaps[0].To) {
			continue
		}
		s.Points = append(s.Points, ferrule.Sample{Time: at, Value: float64(i % 100)}.Point())
	}
	last := s.Points[len(s.Points)-1]
	s.Last = &ferrule.Sample{Time: last.Time, Value: last.Mean}
	r.series = append(r.series, s)
}

// get returns a page. It fails if a text of a device became an element.
func (r *pastRig) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body = w.Body.String()
	if strings.Contains(body, "<script>alert") || strings.Contains(body, "<img src=x") || strings.Contains(body, " style=") {
		t.Errorf("%s has an element of a device, or a style", path)
	}
	return w.Code, body
}

var chartAttribute = regexp.MustCompile(`data-chart="([^"]*)"`)

// charts returns what the scripts of a page draw.
func charts(t *testing.T, body string) (all []chartData) {
	t.Helper()
	for _, m := range chartAttribute.FindAllStringSubmatch(body, -1) {
		var d chartData
		if err := json.Unmarshal([]byte(unescape.UnescapeString(m[1])), &d); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// TestHistoryPage checks that the tab has a picture without a script, and what a script
// needs: bounded, with gaps and calls.
func TestHistoryPage(t *testing.T) {
	r := newPastRig(t)
	now := time.Now()
	gap := ferrule.Gap{From: now.Add(-20 * time.Minute), To: now.Add(-10 * time.Minute)}
	r.measure("temperature", "°C", 3000, gap)
	r.measure("outside", "°C", 100)
	r.measure("hostile", evil[:12], 100)
	r.calls = []ferrule.Entry{{Tool: evil, Time: now.Add(-time.Minute), MayHaveRun: true}}
	status, body := r.get(t, "/devices/board/history")
	all := charts(t, body)
	if status != http.StatusOK || len(all) != 2 {
		t.Fatalf("status %d, %d charts; want one for each unit", status, len(all))
	}
	c := all[0]
	if len(c.Series) != 2 || c.Series[0].Name != "temperature" || c.Device != "board" || c.Unit != "°C" {
		t.Errorf("%+v", c)
	}
	if n := len(c.Series[0].Times); n < 100 || n > curveColumns+1 {
		t.Errorf("%d columns of 3000 samples, want at most %d", n, curveColumns)
	}
	if len(c.Gaps) != 1 || c.Gaps[0][0] != gap.From.UnixMilli() || len(c.Calls) != 1 || !c.Calls[0].Maybe {
		t.Errorf("gaps %v, calls %v", c.Gaps, c.Calls)
	}
	for _, want := range []string{`<svg class="chart only-w"`, `class="gp"`, `class="mk q"`, "No data", `data-plot="/static/`, `data-live="/live/devices/board/history"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if len(body) > 200_000 {
		t.Errorf("the page has %d bytes", len(body))
	}
}

// TestHistoryViews checks the table, the file, one chart, and what is not there.
func TestHistoryViews(t *testing.T) {
	r := newPastRig(t)
	if status, body := r.get(t, "/devices/board/history"); status != http.StatusOK || !strings.Contains(body, "no measured values") {
		t.Error(status, "a device without values must say so")
	}
	r.measure("temperature", "=1+1", 500)
	for path, want := range map[string]string{
		"history?view=table":                     "<caption",
		"history?range=7d":                       `aria-current="true">7 d`,
		"history.csv?signal=temperature":         "temperature,'=1+1,",
		"chart?signal=temperature&range=15m":     `id="chart-temperature"`,
		"history?signal=temperature&signal=none": `value="temperature" checked`,
	} {
		if status, body := r.get(t, "/devices/board/"+path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %q in %s", path, status, want, body[:min(len(body), 4000)])
		}
	}
	for path, want := range map[string]int{"board/history?range=1y": 400, "board/chart": 400, "board/chart?signal=none": 404, "other/history": 404, "other/wire": 404, "other/events": 404, "other/resources": 404} {
		if status, _ := r.get(t, "/devices/"+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// TestOfflineIsAGap checks that nothing is drawn after the last sample of a device that is
// offline.
func TestOfflineIsAGap(t *testing.T) {
	now := time.Now()
	s := builtin.HistorySeries{Points: []builtin.HistoryPoint{{Time: now.Add(-time.Minute), Value: 1}}}
	if got := seriesOf(s, &ferrule.Device{State: ferrule.StateOffline}, now).Gaps; len(got) != 1 || !got[0].To.Equal(now) {
		t.Error(got)
	}
	if got := seriesOf(s, &ferrule.Device{State: ferrule.StateOnline}, now).Gaps; len(got) != 0 {
		t.Error(got)
	}
}

// stream opens a live stream, and returns its events.
func (r *pastRig) stream(t *testing.T, path string) (events <-chan [2]string) {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	all := make(chan [2]string, 100)
	go func() {
		defer close(all)
		name := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = text
			} else if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && name != "" {
				all <- [2]string{name, text}
			}
		}
	}()
	return all
}

// await returns the next event with a name that has a text.
func await(t *testing.T, events <-chan [2]string, name, text string) string {
	t.Helper()
	timeout := time.After(wait.Ample)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the stream ended before %s with %q", name, text)
			}
			if e[0] == name && strings.Contains(e[1], text) {
				return e[1]
			}
		case <-timeout:
			t.Fatalf("no event %s with %q", name, text)
		}
	}
}

// reading passes on a sample as the streams do.
func (r *pastRig) reading(signal string, samples ...ferrule.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fn := range r.samples {
		fn(ferrule.Reading{Device: "board", Batches: []ferrule.SampleBatch{{Signal: signal, Unit: "V", Samples: samples}}})
	}
}

// TestSamplesReachThePage checks that a page gets the last sample when it connects, and then
// new ones.
func TestSamplesReachThePage(t *testing.T) {
	r := newPastRig(t)
	r.measure("voltage", "V", 10)
	events := r.stream(t, "/live/devices/board/history")
	await(t, events, "samples", `"voltage"`)
	at := time.Now()
	r.reading("voltage", ferrule.Sample{Time: at, Value: 12.5})
	got := await(t, events, "samples", "12.5")
	figure.AtMost(t, "until a sample reaches the page", time.Since(at), time.Second)
	if want := fmt.Sprintf(`{"device":"board","signals":{"voltage":{"u":"V","s":[%d,12.5]}}}`, at.UnixMilli()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// journalCalls are the calls that the journal has.
type journalCalls struct {
	api.Calls
	all []audit.Call
}

func (r *journalCalls) Recent(_ int, match func(*audit.Call) bool) (found []audit.Call) {
	for _, c := range r.all {
		if match(&c) {
			found = append(found, c)
		}
	}
	return found
}

// TestNewCallsAreMarked checks that an open chart gets each new call once, if it ran or may
// have run.
func TestNewCallsAreMarked(t *testing.T) {
	r := newPastRig(t)
	start := time.Now()
	call := func(tool string, after time.Duration, code ferrule.Code, maybe bool) audit.Call {
		at := start.Add(after)
		return audit.Call{Record: audit.Record{Began: at, Entry: ferrule.Entry{Time: at, Phase: ferrule.Outcome, Device: "board", Tool: tool, Code: code, MayHaveRun: maybe}}}
	}
	r.journal.all = []audit.Call{call("move", time.Second, "", false), call("jam", 2*time.Second, ferrule.Unanswered, true), call("refused", time.Second, ferrule.Denied, false), call("old", -time.Second, "", false)}
	l := &marksLive{Console: r.Console, who: r.role.LoggedIn("anna"), device: "board", after: start}
	woken := 0
	stop := l.watch(func(string) { woken++ })
	r.hub.called([]string{"other"})
	r.hub.called([]string{"board"})
	stop()
	r.hub.called([]string{"board"})
	if woken != 1 {
		t.Errorf("woken %d times, want once: by calls of its device", woken)
	}
	out := &updates{}
	if err := l.update(t.Context(), []string{"calls"}, out); err != nil || len(out.extra) != 1 {
		t.Fatal(err, out.extra)
	}
	var m marksMessage
	if err := json.Unmarshal(out.extra[0].data, &m); err != nil || len(m.Calls) != 2 || m.Calls[0].Tool != "move" || m.Calls[1].Tool != "jam" || !m.Calls[1].Maybe {
		t.Errorf("%s %v", out.extra[0].data, err)
	}
	if out = (&updates{}); l.update(t.Context(), []string{"calls"}, out) != nil || len(out.extra) != 0 {
		t.Error("a call is sent twice")
	}
}

// TestWaitingSamplesAreBounded checks that a page that does not read keeps little.
func TestWaitingSamplesAreBounded(t *testing.T) {
	l := &samplesLive{device: "board"}
	for i := range 10_000 {
		samples := []ferrule.Sample{{Time: time.UnixMilli(int64(i)), Value: float64(i)}}
		l.add(ferrule.Reading{Batches: []ferrule.SampleBatch{{Signal: fmt.Sprint("s", i%100), Samples: samples}, {Signal: "one", Samples: samples, Gaps: []ferrule.Gap{{}}}}})
	}
	if n := len(l.waiting); n > maxLiveSignals {
		t.Errorf("%d signals wait, limit is %d", n, maxLiveSignals)
	}
	one := l.waiting["one"]
	if n := len(one.Samples); n > 2*maxLiveSamples || one.Samples[n-1] != 9999 {
		t.Errorf("%d numbers wait, the last is %v", n, one.Samples[n-1])
	}
	if n := len(one.Gaps); n > 2*maxLiveGaps {
		t.Errorf("%d ends of gaps wait", n)
	}
}

// TestEvents checks that stored and new events are shown in words, each once.
func TestEvents(t *testing.T) {
	r := newPastRig(t)
	at := time.Now()
	r.events = []ferrule.Event{{Time: at, Type: ferrule.Appeared, Device: "board", Node: "a"}, {Time: at, Type: ferrule.Notified, Device: "board", Method: evil, Params: json.RawMessage(`{"x":"<script>alert(1)</script>"}`)}}
	if status, body := r.get(t, "/devices/board/events"); status != http.StatusOK || !strings.Contains(body, "Online") || !strings.Contains(body, "Reported") {
		t.Error(status, body)
	}
	events := r.stream(t, "/live/devices/board/events")
	await(t, events, "elements", "Reported")
	r.mu.Lock()
	for _, fn := range r.hears {
		fn(ferrule.Event{Time: at.Add(time.Second), Type: ferrule.Gone, Device: "other"})
		fn(ferrule.Event{Time: at.Add(time.Second), Type: ferrule.Gone, Device: "board", Reason: "unplugged"})
	}
	r.mu.Unlock()
	text := await(t, events, "elements", "unplugged")
	if n := strings.Count(text, `u003ctr\u003e`); n != 4 || strings.Contains(text, "script>alert") {
		t.Errorf("%d rows in %s, want 3 events and the head", n, text)
	}
}

// TestResources checks that pictures are raster images, and that everything else is text.
func TestResources(t *testing.T) {
	r := newPastRig(t)
	png := []byte("\x89PNG\r\n\x1a\n and more")
	svg := []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`)
	for _, test := range []struct {
		name    string
		content ferrule.Content
		want    string
		not     string
	}{
		{"PNG", ferrule.Content{MIME: "image/png", Data: png}, `src="data:image/png;base64,`, ""},
		{"SVG", ferrule.Content{MIME: "image/svg+xml", Data: svg}, "image/svg&#43;xml", "src=\"data:"},
		{"SVG that says it is PNG", ferrule.Content{MIME: "image/png", Data: svg}, "bytes", "src=\"data:"},
		{"too large", ferrule.Content{MIME: "image/png", Data: append(png, make([]byte, maxPicture)...)}, "bytes", "src=\"data:"},
		{"HTML", ferrule.Content{MIME: "text/html", Text: evil}, "&lt;script&gt;", ""},
		{"long", ferrule.Content{Text: strings.Repeat("x", maxShownText+1)}, "Cut after", ""},
	} {
		r.read = []ferrule.Content{test.content}
		status, body := r.get(t, "/devices/board/resources?uri=log://x")
		if status != http.StatusOK || !strings.Contains(body, test.want) || test.not != "" && strings.Contains(body, test.not) {
			t.Errorf("%s: status %d, want %q and not %q", test.name, status, test.want, test.not)
		}
	}
}

// frame passes on a frame as the dock does.
func (r *pastRig) frame(data string) (watched int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fn := range r.traces {
		fn(ferrule.Trace{Time: time.Now(), Direction: "in", Data: data})
	}
	return len(r.traces)
}

// TestWire checks that owners see frames as they come, and that others see none.
func TestWire(t *testing.T) {
	r := newPastRig(t)
	r.role = ferrule.RoleOperator
	if status, body := r.get(t, "/devices/board/wire"); status != http.StatusForbidden || !strings.Contains(body, "Only an owner") {
		t.Error(status)
	}
	if status, _ := r.get(t, "/live/devices/board/wire"); status == http.StatusOK || len(r.wires.all) != 0 {
		t.Error("a person who is not an owner follows frames")
	}
	r.role = ferrule.RoleOwner
	events := r.stream(t, "/live/devices/board/wire")
	await(t, events, "hello", "")
	wait.For(t, "the frame is followed", func() bool { return r.frame("hello <script>") > 0 })
	if text := await(t, events, "frames", "hello"); strings.Contains(text, "script>") {
		t.Error(text)
	}
	if status, body := r.get(t, "/devices/board/wire"); status != http.StatusOK || !strings.Contains(body, "hello &lt;script&gt;") {
		t.Error(status, "the last frames are missing")
	}
}

// TestWireEnds checks that frames are recorded for a minute after the last page was closed,
// and that few are kept.
func TestWireEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPastRig(t)
		w, release, err := r.openWire(r.role.LoggedIn("anna"), "board")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i := range 10 * keptFrames {
			r.frame(fmt.Sprint(i))
		}
		rows, _ := w.last()
		if len(rows) != keptFrames || len(w.frames) > 2*keptFrames || rows[0].Data != fmt.Sprint(10*keptFrames-1) {
			t.Errorf("%d rows, %d kept, the newest is %s", len(rows), len(w.frames), rows[0].Data)
		}
		release()
		time.Sleep(wireLinger - time.Second)
		if r.frame("late") != 1 {
			t.Error("frames are not recorded any more")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r.frame("too late") != 0 || len(r.wires.all) != 0 {
			t.Error("frames are still recorded")
		}
	})
}
