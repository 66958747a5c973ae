package api

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Common is embedded in other inputs.
type Common struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Limit  int    `json:"limit,omitempty" jsonschema:"number of rows"`
}

type testInput struct {
	Common
	Labels []string         `json:"labels,omitempty"`
	All    bool             `json:"all,omitempty"`
	Since  ferrule.Duration `json:"since,omitempty"`
	Below  *float64         `json:"below,omitempty"`
}

type testOutput struct {
	Who string    `json:"who"`
	Got testInput `json:"got"`
}

// testAPI returns an API with operations of its own, which return their input.
func testAPI(t *testing.T) *API {
	t.Helper()
	echo := func(_ context.Context, who ferrule.Principal, in testInput) (testOutput, error) {
		switch in.Device {
		case "gone":
			return testOutput{}, ferrule.Errorf(ferrule.NotFound, "gone is gone").WithHint("look for it")
		case "maybe":
			return testOutput{}, ferrule.Errorf(ferrule.Unanswered, "no answer")
		}
		return testOutput{who.Name, in}, nil
	}
	a := &API{parts: Parts{Log: slog.New(slog.DiscardHandler)}, all: []Operation{
		operation(http.MethodGet, "/things/{device}", "Read a thing.", ferrule.ScopeRead, echo),
		operation(http.MethodPost, "/things/{device}", "Change a thing.", ferrule.ScopeChange, echo),
		operation(http.MethodPost, "/things/{device}/drop", "Drop a thing.", ferrule.ScopeAdmin, echo),
	}}
	for _, o := range a.all {
		if err := o.schemas().err; err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// asRole is a session of a person with the role that a header has.
func asRole(r *http.Request) (ferrule.Principal, error) {
	role := ferrule.PersonRole(r.Header.Get("Role"))
	if role == "" {
		return ferrule.Principal{}, NotLoggedIn()
	}
	return ferrule.Principal{Role: ferrule.Person, Name: "anna", Scopes: role.Scopes()}, nil
}

// TestRequests checks what each kind of request is answered with.
func TestRequests(t *testing.T) {
	h := testAPI(t).Handler(asRole)
	const plain, form = "application/json", "application/x-www-form-urlencoded"
	for _, c := range []struct {
		name, method, path, kind, body, role string
		status                               int
		want                                 string
	}{
		{"query", "GET", "/things/lamp?limit=3&labels=a&labels=b&all=true&since=5m&below=-1.5", "", "", "viewer", 200,
			`{"who":"anna","got":{"device":"lamp","limit":3,"labels":["a","b"],"all":true,"since":"5m0s","below":-1.5}}`},
		{"HEAD", "HEAD", "/things/lamp?limit=3", "", "", "viewer", 200, ``},
		{"escaped path", "GET", "/things/" + "a%2Fb%20c%3F%25", "", "", "viewer", 200, `"device":"a/b c?%"`},
		{"escaped dots", "GET", "/things/%2E%2E%2Fx", "", "", "viewer", 200, ``},
		{"body", "POST", "/things/lamp", plain + "; charset=utf-8", `{"limit":3}`, "owner", 200, `"limit":3`},
		{"empty body", "POST", "/things/lamp", "", "", "owner", 200, `"device":"lamp"`},
		{"unknown parameter", "GET", "/things/lamp?x=1", "", "", "viewer", 400, `unknown parameter \"x\"`},
		{"parameter twice", "GET", "/things/lamp?limit=1&limit=2", "", "", "viewer", 400, `limit must be given once`},
		{"path in query", "GET", "/things/lamp?device=other", "", "", "viewer", 400, `device is in the path`},
		{"wrong number", "GET", "/things/lamp?limit=x", "", "", "viewer", 400, `limit must be a number, got \"x\"`},
		{"fraction", "GET", "/things/lamp?limit=1.5", "", "", "viewer", 400, `limit must be`},
		{"NaN", "GET", "/things/lamp?below=NaN", "", "", "viewer", 400, `below must be a number`},
		{"wrong truth", "GET", "/things/lamp?all=perhaps", "", "", "viewer", 400, `all must be true or false`},
		{"wrong duration", "GET", "/things/lamp?since=never", "", "", "viewer", 400, `not valid`},
		{"form", "POST", "/things/lamp", form, "limit=3", "owner", 415, `application/json`},
		{"no type", "POST", "/things/lamp", "", `{"limit":3}`, "owner", 415, `application/json`},
		{"unknown field", "POST", "/things/lamp", plain, `{"x":1,"limit":"a"}`, "owner", 400, `"details":[`},
		{"path in body", "POST", "/things/lamp", plain, `{"device":"other"}`, "owner", 400, `device is in the path`},
		{"other case", "POST", "/things/lamp", plain, `{"DEVICE":"other"}`, "owner", 400, `must be written device`},
		{"duplicate", "POST", "/things/lamp", plain, `{"limit":1,"limit":2}`, "owner", 400, `duplicate member`},
		{"array", "POST", "/things/lamp", plain, `[]`, "owner", 400, `must be a JSON object`},
		{"null", "POST", "/things/lamp", plain, `null`, "owner", 400, `must be a JSON object`},
		{"two values", "POST", "/things/lamp", plain, `{} {}`, "owner", 400, `not valid`},
		{"too large", "POST", "/things/lamp", plain, `{"labels":["` + strings.Repeat("a", maxBody) + `"]}`, "owner", 413, `more than`},
		{"method", "DELETE", "/things/lamp", "", "", "owner", 405, `only GET and HEAD and POST`},
		{"method of another", "GET", "/things/lamp/drop", "", "", "owner", 405, `only POST`},
		{"unknown", "GET", "/nothing", "", "", "owner", 404, `openapi.json`},
		{"not logged in", "GET", "/things/lamp", "", "", "", 401, `ferrule open`},
		{"viewer", "POST", "/things/lamp", "", "", "viewer", 403, `needs the scope change`},
		{"operator", "POST", "/things/lamp", "", "", "operator", 200, ``},
		{"operator beyond", "POST", "/things/lamp/drop", "", "", "operator", 403, `needs the scope admin`},
		{"not found", "GET", "/things/gone", "", "", "viewer", 404, `{"error":{"code":"not_found","message":"gone is gone","hint":"look for it","may_have_run":false}}`},
		{"unanswered", "GET", "/things/maybe", "", "", "viewer", 504, `"may_have_run":true`},
		{"description", "GET", "/openapi.json", "", "", "", 200, `"openapi":"3.1.0"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, Prefix+c.path, strings.NewReader(c.body))
			r.Header.Set("Role", c.role)
			r.Header.Set("Content-Type", c.kind)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			body, err := io.ReadAll(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			if w.Code != c.status || !strings.Contains(string(body), c.want) {
				t.Errorf("got %d %s, want %d with %s", w.Code, body, c.status, c.want)
			}
			if !json.Valid(body) {
				t.Errorf("not JSON: %s", body)
			}
			if got := w.Header(); got.Get("Content-Type") != "application/json" || got.Get("Cache-Control") != "no-store" || got.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", got)
			}
			if c.status == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
				t.Error("no Allow")
			}
		})
	}
}

// TestDots checks that a path with dots does not reach another operation.
func TestDots(t *testing.T) {
	h := testAPI(t).Handler(asRole)
	for _, path := range []string{"/things/../things/lamp", "/things/%2e%2e/lamp", "/things//lamp"} {
		r := httptest.NewRequest(http.MethodGet, "http://gateway"+Prefix+path, nil)
		r.Header.Set("Role", "owner")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestUndescribed checks that an operation that cannot be described is refused.
func TestUndescribed(t *testing.T) {
	none := func(context.Context, ferrule.Principal, struct{}) (struct{}, error) { return struct{}{}, nil }
	nested := func(context.Context, ferrule.Principal, struct {
		Within Common `json:"within"`
	}) (struct{}, error) {
		return struct{}{}, nil
	}
	for want, o := range map[string]Operation{
		"the input has no id":         operation(http.MethodGet, "/a/{id}", "A.", ferrule.ScopeRead, none),
		"within cannot be given in":   operation(http.MethodGet, "/a", "A.", ferrule.ScopeRead, nested),
		"the method must be GET or P": operation(http.MethodDelete, "/a", "A.", ferrule.ScopeRead, none),
	} {
		if err := o.schemas().err; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
