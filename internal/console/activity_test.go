package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// journalRig is a console with a journal and two devices: everybody may see the kiln, and
// only owners the safe.
type journalRig struct {
	*deviceRig
	journal *journal.Journal
	log     *audit.CallLog
	doctor  chan []api.Finding
}

var kilnManifest = &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "hold", Effect: ferrule.Changes}, {Name: "read_status", Effect: ferrule.Reads}}}

func newJournalRig(t *testing.T) *journalRig {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	r := &journalRig{deviceRig: &deviceRig{fleet: fleet.New(nil), who: listOwner}, journal: j, doctor: make(chan []api.Finding, 1)}
	r.log = audit.NewCallLog(audit.CallLogParts{Data: dir, Lines: j.Lines, Warn: func(string, error) {}})
	for _, id := range []string{"kiln", "safe"} {
		r.fleet.Put(&ferrule.Device{ID: id, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Node: "here"}, kilnManifest, nil)
	}
	visible := func(who ferrule.Principal) ferrule.Visibility {
		if who.Scopes.Has(ferrule.ScopeAdmin) {
			return ferrule.Visibility{}
		}
		return ferrule.Visibility{Shows: func(dev *ferrule.Device, _ ferrule.Operation, _ *ferrule.Tool) bool { return dev.ID == "kiln" }}
	}
	r.Console = newTestConsole(t, api.Parts{
		Handle: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls = append(r.calls, fmt.Sprintf("%s %s %s", call.Principal, call.Tool, call.Args))
			if call.Tool == "status" {
				return &ferrule.Result{Value: json.RawMessage(`{"brokers":["<i>home is offline"]}`)}, nil
			}
			return &ferrule.Result{Value: json.RawMessage(`{"people":[{"name":"ben","role":"viewer","sessions":1}],"approvals":[],"url":"http://gateway/link","name":"ben"}`)}, nil
		},
		Find: func(who ferrule.Principal, id string) (api.Found, error) {
			dev, m, ok := r.fleet.Lookup(id)
			if !ok {
				return api.Found{}, ferrule.UnknownDevice(id)
			}
			return api.Found{Device: dev, Manifest: m}, nil
		},
		Calls: r.log, Devices: api.DeviceParts{Fleet: r.fleet, Visible: visible},
		System: api.SystemParts{
			Info: func() api.SystemInfo {
				return api.SystemInfo{Version: "1.2.3", Started: time.Now().Add(-72 * time.Hour), Mode: "embedded", Node: "here", Working: true, Listen: "127.0.0.1:9", Nodes: []api.Node{{Name: "here", This: true}}, Journal: api.Health{Working: true}, History: api.Health{Working: true}, Memory: 64 << 20}
			},
			Config: func() []api.ConfigValue {
				return []api.ConfigValue{{Key: "listen", Value: "127.0.0.1:9", Source: "ferrule.yaml"}, {Key: "devices.mqtt[0].password", Value: "(secret, set)", Source: "ferrule.yaml", Secret: true}, {Key: "calls.deadline", Value: "30s", Source: "default"}}
			},
			Verify: func(ctx context.Context) (audit.Verification, error) {
				return audit.Verify(ctx, audit.Parts{Data: dir, Warn: func(string) {}}, audit.VerifyOptions{Local: true})
			},
			Doctor: func(ctx context.Context) []api.Finding {
				select {
				case f := <-r.doctor:
					return f
				case <-ctx.Done():
					return nil
				}
			},
		},
	}, Parts{People: r.people(), Fleet: r.fleet, Streams: r, Calls: r.log})
	return r
}

func viewer(name string) ferrule.Principal {
	return ferrule.Principal{Role: ferrule.Person, Name: name, Scopes: ferrule.LimitTo(ferrule.ScopeRead)}
}

// record writes a record and waits until the console knows it.
func (r *journalRig) record(t *testing.T, e ferrule.Entry) {
	t.Helper()
	if e.Principal.Name == "" {
		e.Principal = ferrule.Principal{Role: ferrule.Agent, Name: "codex", Auth: ferrule.AuthToken}
	}
	if e.Phase == "" {
		e.Phase = ferrule.Outcome
	}
	if err := r.journal.Append(e, true); err != nil {
		t.Fatal(err)
	}
}

func (r *journalRig) status(path string) int {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}

// post sends a form and returns the answer.
func (r *journalRig) post(path string, values url.Values) *httptest.ResponseRecorder {
	values.Set("csrf", "token")
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(values.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

// TestActivityPage checks rows, words, filters and details.
func TestActivityPage(t *testing.T) {
	r := newJournalRig(t)
	r.record(t, ferrule.Entry{Call: "c1", Phase: ferrule.Intent, Device: "kiln", Kind: "k", Tool: "hold", Args: json.RawMessage(`{"minutes":15}`)})
	r.record(t, ferrule.Entry{Call: "c1", Device: "kiln", Kind: "k", Tool: "hold", Args: json.RawMessage(`{"minutes":15}`), Code: ferrule.Unanswered, MayHaveRun: true, Message: "no answer in 5 s", Took: ferrule.Duration(5 * time.Second), Client: ferrule.Client{Name: "Codex CLI", Version: "0.166"}, Verdict: ferrule.Permit, Rule: "preset careful"})
	r.record(t, ferrule.Entry{Call: "c2", Device: "kiln", Kind: "k", Tool: "read_status"})
	r.record(t, ferrule.Entry{Call: "c3", Device: "safe", Kind: "k", Tool: "hold", Code: ferrule.Offline, Message: "safe is offline"})
	r.record(t, ferrule.Entry{Call: "c4", Device: "kiln", Kind: "k", Tool: "hold", Code: ferrule.Refused, Message: "too hot"})
	all := r.get(t, "/activity")
	contains(t, all, "May have run", "Done", "Not sent", "Refused by the device", "minutes=15", "agent codex", "no answer in 5 s", "5.0 s", `href="/devices/kiln"`, `href="/activity/c1?at=`)
	for query, want := range map[string]string{
		"outcome=may_have_run": "c1", "outcome=done": "c2", "outcome=not_sent": "c3", "outcome=refused": "c4", "device=safe": "c3", "tool=read_status": "c2", "effect=reads": "c2",
		"caller=codex&text=HOT": "c4", "text=minutes": "c1", "since=1h&outcome=refused": "c4", "caller=Codex+CLI": "c1",
	} {
		got := regexp.MustCompile(`href="/activity/(c\d)\?`).FindAllStringSubmatch(r.get(t, "/activity?"+query), -1)
		if len(got) != 1 || got[0][1] != want {
			t.Errorf("%s: %q, want %s", query, got, want)
		}
	}
	contains(t, r.get(t, "/activity?device=nothing"), "No call matches")
	if r.status("/activity?before=x") != http.StatusBadRequest || r.status("/activity?since=x") != http.StatusBadRequest || r.status("/activity/unknown") != http.StatusNotFound {
		t.Error("wrong statuses")
	}
	page := r.get(t, "/activity/c1")
	contains(t, page, "did not answer in", "It was not sent again.", "#tool-read_status", "agent:codex, authenticated by token, program Codex CLI 0.166", "permit: preset careful", "#2", "intent on disk", "/devices/kiln/wire", "<!doctype html>")
	more := r.get(t, "/activity/c1", "HX-Request", "true")
	contains(t, more, `<tr class="more">`, "did not answer in")
	lacks(t, more, "<html")
}

// TestActivitySeen checks that people see calls of their devices only, and that arguments,
// messages that repeat them, and access records are for owners.
func TestActivitySeen(t *testing.T) {
	r := newJournalRig(t)
	anna := ferrule.Principal{Role: ferrule.Person, Name: "anna"}
	r.record(t, ferrule.Entry{Call: "c1", Device: "kiln", Tool: "hold", Args: json.RawMessage(`{"minutes":"args1"}`), Code: ferrule.Invalid, Message: "minutes must be a number, got message1"})
	r.record(t, ferrule.Entry{Call: "c2", Device: "safe", Tool: "hold", Args: json.RawMessage(`{"minutes":"args2"}`)})
	r.record(t, ferrule.Entry{Call: "c3", Device: "kiln", Tool: "hold", Args: json.RawMessage(`{"minutes":"args3"}`), Principal: anna})
	r.record(t, ferrule.Entry{Call: "c4", Device: ferrule.GatewayID, Tool: "adopt_device", Args: json.RawMessage(`{"device":"args4"}`)})
	r.record(t, ferrule.Entry{Call: "c5", Device: "kiln", Tool: "hold", Code: ferrule.Offline, Message: "kiln is offline since noon"})
	r.record(t, ferrule.Entry{Phase: ferrule.Access, Tool: string(ferrule.AccessLogin), From: "10.1.1.1", Message: "access6"})
	r.record(t, ferrule.Entry{Phase: ferrule.Stopped, Message: "stop7"})
	contains(t, r.get(t, "/activity"), "args1", "message1", "args2", "args3", "args4", "access6", "stop7", "Logged in")
	r.who = viewer("anna")
	page := r.get(t, "/activity")
	contains(t, page, "args3", "offline since noon", "stop7", "/activity/c1?")
	lacks(t, page, "args1", "message1", "args2", "args4", "access6", "10.1.1.1", "safe", `action="/activity/verify"`)
	detail := r.get(t, "/activity/c1")
	contains(t, detail, "Only an owner sees the arguments of others.")
	lacks(t, detail, "args1", "message1")
	for _, path := range []string{"/activity/c2", "/activity/c4"} {
		if got := r.status(path); got != http.StatusNotFound {
			t.Errorf("%s: %d", path, got)
		}
	}
	lacks(t, r.get(t, "/activity?text=args1"), "/activity/c1?") // a search does not reveal it
	lacks(t, r.get(t, api.Prefix+"/activity"), "args1", "message1", "args2", "args4", "access6", "safe")
	if w := r.post("/activity/verify", url.Values{}); w.Code != http.StatusForbidden {
		t.Errorf("a viewer verifies: %d", w.Code)
	}
	r.who = ferrule.Principal{Role: ferrule.Person, Name: "limited", Scopes: ferrule.LimitTo(ferrule.ScopeAdmin), Devices: "kiln"}
	lacks(t, r.get(t, "/activity"), "args2", "access6")
}

// TestActivityHostile checks that texts of agents and devices stay texts.
func TestActivityHostile(t *testing.T) {
	r := newJournalRig(t)
	evil := `"><script>alert(1)</script><img src=x onerror=y>` + "\u202e"
	name, err := json.Marshal(map[string]string{evil: evil})
	if err != nil {
		t.Fatal(err)
	}
	r.record(t, ferrule.Entry{
		Call: "x/../" + evil, Device: evil, Kind: "k", Tool: evil, Args: name, Code: ferrule.Failed, MayHaveRun: true, Message: evil, Rule: evil, Via: evil,
		Principal: ferrule.Principal{Role: ferrule.Agent, Name: evil, User: evil}, Client: ferrule.Client{Name: evil, Version: evil},
	})
	r.record(t, ferrule.Entry{Call: "long", Device: "kiln", Tool: "hold", Args: json.RawMessage(`{"x":"` + strings.Repeat("y", 100_000) + `"}`), Message: strings.Repeat("z", 100_000)})
	page := r.get(t, "/activity")
	link := regexp.MustCompile(`href="(/activity/x[^"]*)"`).FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("no link in %s", page)
	}
	for _, text := range []string{page, r.get(t, strings.ReplaceAll(link[1], "&amp;", "&")), r.get(t, "/activity/long")} {
		lacks(t, text, "<script>alert", "<img src=x", "\u202e")
		if len(text) > 200_000 {
			t.Errorf("a page has %d bytes", len(text))
		}
	}
}

// TestActivityVerify checks that a verification is started once and says up to where the
// journal is intact.
func TestActivityVerify(t *testing.T) {
	r := newJournalRig(t)
	r.record(t, ferrule.Entry{Call: "c1", Device: "kiln", Tool: "hold"})
	if w := r.post("/activity/verify", url.Values{}); w.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	wait.For(t, "the verdict", func() bool {
		return strings.Contains(r.get(t, "/activity/verify", "HX-Request", "true"), "Journal intact up to record 1<")
	})
}

// TestActivityLive checks that new calls arrive as rows, and change when they end.
func TestActivityLive(t *testing.T) {
	r := newJournalRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.log.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	r.record(t, ferrule.Entry{Call: "before", Device: "kiln", Tool: "hold"})
	page := r.get(t, "/activity?device=kiln")
	stream := regexp.MustCompile(`data-live="([^"]*)"`).FindStringSubmatch(page)
	if stream == nil {
		t.Fatal("the page is not live")
	}
	server := httptest.NewServer(r)
	defer server.Close()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+strings.ReplaceAll(stream[1], "&amp;", "&"), nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	r.record(t, ferrule.Entry{Call: "new", Phase: ferrule.Intent, Device: "kiln", Tool: "hold"})
	r.record(t, ferrule.Entry{Call: "other", Device: "safe", Tool: "hold"})
	lines, text := bufio.NewScanner(resp.Body), ""
	lines.Buffer(nil, 1<<20)
	for ended := false; lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var rows []liveRow
		if !ok || json.Unmarshal([]byte(data), &rows) != nil {
			continue
		}
		for _, row := range rows {
			text += row.HTML
			if row.ID != "call--new" {
				t.Errorf("row %s", row.ID)
			}
			if !ended && (row.Say == "" || !strings.Contains(row.HTML, "no outcome yet")) {
				t.Errorf("the intent: %+v", row)
			}
		}
		if strings.Contains(text, "Done") {
			break
		}
		if !ended {
			ended = true
			r.record(t, ferrule.Entry{Call: "new", Device: "kiln", Tool: "hold"})
		}
	}
	contains(t, text, "Done")
	lacks(t, text, "safe", "before")
}
