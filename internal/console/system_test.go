package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestSystemPage checks what an owner and what a viewer sees.
func TestSystemPage(t *testing.T) {
	r := newJournalRig(t)
	contains(t, r.get(t, "/system"), "1.2.3", "up 3 days on here", "64<small> MB", "&lt;i&gt;home is offline", "(secret, set)", "# ferrule.yaml", "What is at its default", "ben", "Run doctor", "127.0.0.1:9", `href="/healthz"`, `href="/metrics"`)
	r.who = viewer("anna")
	page := r.get(t, "/system")
	contains(t, page, "1.2.3", "Config, findings and people are for owners.")
	lacks(t, page, "ben", "password", "127.0.0.1:9", "Run doctor")
	for _, path := range []string{"/system/config", "/system/doctor", "/people"} {
		if got := r.status(api.Prefix + path); got != http.StatusForbidden {
			t.Errorf("%s: %d", path, got)
		}
	}
	if w := r.post("/system/doctor", url.Values{}); w.Code != http.StatusForbidden {
		t.Errorf("a viewer runs the doctor: %d", w.Code)
	}
}

// TestSystemDoctor checks that the doctor runs once at a time, and shows what it found.
func TestSystemDoctor(t *testing.T) {
	r := newJournalRig(t)
	for range 2 {
		if w := r.post("/system/doctor", url.Values{}); w.Code != http.StatusSeeOther {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	contains(t, r.get(t, "/system/doctor", "HX-Request", "true"), "The doctor is looking", `hx-trigger="every 1s"`)
	r.doctor <- []api.Finding{{Area: "ports", State: "wrong", Found: "<b>no access", Next: "add yourself"}, {Area: "data", State: "fine", Found: "good"}}
	var page string
	wait.For(t, "findings", func() bool {
		page = r.get(t, "/system/doctor", "HX-Request", "true")
		return !strings.Contains(page, "is looking")
	})
	contains(t, page, "&lt;b&gt;no access", "add yourself", "1 other checks are fine")
}

// TestSystemPeople checks that each button is a call of the owner, and that a link is shown
// only where it was asked for.
func TestSystemPeople(t *testing.T) {
	r := newJournalRig(t)
	for _, form := range []struct{ path, values string }{
		{"/system/people", "name=carl&role=operator"}, {"/system/people/ben", "do=role&role=owner"}, {"/system/people/ben", "do=logout"}, {"/system/people/ben", "do=remove"},
	} {
		values, err := url.ParseQuery(form.values)
		if err != nil {
			t.Fatal(err)
		}
		if w := r.post(form.path, values); w.Code != http.StatusSeeOther {
			t.Errorf("%s %s: %d %s", form.path, form.values, w.Code, w.Body)
		}
	}
	if w := r.post("/system/people/ben", url.Values{"do": {"link"}}); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "http://gateway/link") {
		t.Errorf("%d", w.Code)
	}
	want := []string{
		`person:maria add_person {"name":"carl","role":"operator"}`, `person:maria set_person_role {"name":"ben","role":"owner"}`,
		`person:maria logout_person {"name":"ben"}`, `person:maria remove_person {"name":"ben"}`, `person:maria create_login_link {"name":"ben"}`,
	}
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls %q", r.calls)
	}
	if w := r.post("/system/people/ben", url.Values{"do": {"x"}}); w.Code != http.StatusBadRequest {
		t.Errorf("%d", w.Code)
	}
}
