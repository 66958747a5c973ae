package oauth

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestRegister checks what is echoed to a program that registers itself.
func TestRegister(t *testing.T) {
	r := newTestServer(t, nil)
	send := func(body string) (int, map[string]any) {
		w := r.send("POST", registerPath, body, "Content-Type", "application/json")
		var out map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		return w.Code, out
	}
	status, out := send(`{"client_name":"HA","redirect_uris":["https://ha.example/auth/external/callback"],"scope":"read nonsense","token_endpoint_auth_method":"client_secret_post","grant_types":["authorization_code","client_credentials"]}`)
	if status != http.StatusCreated || fmt.Sprintf("%v %v %v %v %v", out["redirect_uris"], out["scope"], out["token_endpoint_auth_method"], out["grant_types"], out["response_types"]) != "[https://ha.example/auth/external/callback] read nonsense none [authorization_code] [code]" || out["client_secret"] != nil {
		t.Errorf("%d %v", status, out)
	}
	for body, code := range map[string]string{
		`{}`:                                   "invalid_redirect_uri",
		`[]`:                                   "invalid_client_metadata",
		`null`:                                 "invalid_client_metadata",
		``:                                     "invalid_client_metadata",
		`{"redirect_uris":"https://a/"}`:       "invalid_client_metadata",
		`{"redirect_uris":["http://a/"]}`:      "invalid_redirect_uri",
		`{"redirect_uris":["https://a/#x"]}`:   "invalid_redirect_uri",
		`{"redirect_uris":["app://a/"]}`:       "invalid_redirect_uri",
		`{"redirect_uris":["https://u@a/cb"]}`: "invalid_redirect_uri",
	} {
		if status, out := send(body); status != http.StatusBadRequest || out["error"] != code {
			t.Errorf("%s: %d %v", body, status, out)
		}
	}
	if !r.recorded(ferrule.AccessClientAdded, true, "") {
		t.Error("refusals are not recorded")
	}
	off := newTestServer(t, func(p *Parts) { p.Config.Register = false })
	if w := off.send("POST", registerPath, `{"redirect_uris":["https://a/"]}`); w.Code != http.StatusForbidden {
		t.Errorf("%d", w.Code)
	}
	if w := off.send("GET", metadataPath, ""); strings.Contains(w.Body.String(), "registration_endpoint") {
		t.Error("registration is off, but offered")
	}
}

// TestRegisterLimits checks the limits per address and in all, and what is removed.
func TestRegisterLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestServer(t, nil)
		try := func(host int) int {
			req := httptest.NewRequest("POST", registerPath, strings.NewReader(`{"redirect_uris":["http://localhost:4711/callback"]}`))
			req.RemoteAddr = fmt.Sprintf("192.0.%d.%d:999", host/250, host%250+1)
			w := httptest.NewRecorder()
			r.mux.ServeHTTP(w, req)
			return w.Code
		}
		n := 0
		for try(0) == http.StatusCreated {
			n++
		}
		if n != registerLimit.rate.Burst || try(1) != http.StatusCreated {
			t.Errorf("%d registrations from one address", n)
		}
		for host := 2; try(host) == http.StatusCreated; host++ {
			n++
		}
		if n+1 != registerRate.Burst {
			t.Errorf("%d registrations in all", n+1)
		}
		ids := slices.Collect(maps.Keys(r.clients))
		used, ended := ids[0], ids[1]
		out := r.login(used)
		time.Sleep(time.Second)
		r.token(exchanging(ended, r.code(asking(ended))))
		r.Revoke(owner, r.Grants()[1].Name)
		for i := range 400 {
			id := fmt.Sprint("other", i)
			r.clients[id] = &client{ID: id, Created: time.Now()}
		}
		for host := range 100 { // more than there is room for
			time.Sleep(minAge / 50)
			try(host)
		}
		if len(r.clients) != maxClients || r.clients[used] == nil || r.clients[ended] == nil {
			t.Errorf("%d clients", len(r.clients))
		}
		time.Sleep(25 * time.Hour)
		r.sweep(time.Now())
		if len(r.clients) != 2 {
			t.Errorf("%d clients after a day", len(r.clients))
		}
		r = r.restart()
		if len(r.clients) != 2 {
			t.Errorf("%d clients after a restart", len(r.clients))
		}
		for range 4 {
			time.Sleep(25 * 24 * time.Hour)
			if out = r.token(refreshing(used, out.Refresh)); out.Status != http.StatusOK {
				t.Fatalf("%+v", out)
			}
		}
		r.sweep(time.Now())
		if len(r.clients) != 1 || r.clients[used] == nil {
			t.Errorf("%d clients after 100 days", len(r.clients))
		}
		// Many that have just come are not pushed out.
		for i := range maxClients - 1 {
			id := fmt.Sprint("new", i)
			r.clients[id] = &client{ID: id, Created: time.Now()}
		}
		if err := r.addClient(&client{ID: "x", Created: time.Now()}); err == nil {
			t.Error("no limit")
		}
	})
}

// TestLimits checks the rate limits of the endpoints, and the bounds of memory.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestServer(t, nil)
		id := r.register(callback)
		out := r.login(id)
		for target, burst := range map[string]int{authorizePath + "?" + asking("unknown").Encode(): authorizeLimit.rate.Burst, tokenPath: tokenLimit.rate.Burst} {
			method := http.MethodPost
			if target != tokenPath {
				method = http.MethodGet
			}
			n := 0
			for ; r.send(method, target, "").Code != http.StatusTooManyRequests; n++ {
				if n > 1000 {
					t.Fatal("no limit")
				}
			}
			if n != burst {
				t.Errorf("%s: %d requests", target, n)
			}
		}
		if wrong := r.token(refreshing(id, "ferr_unknown")); wrong.Status != http.StatusTooManyRequests {
			t.Errorf("an unknown token: %+v", wrong)
		}
		if again := r.token(refreshing(id, out.Refresh)); again.Status != http.StatusOK {
			t.Errorf("wrong requests lock out a right one: %+v", again)
		}
		r.login(id)
		time.Sleep(time.Hour)
		for range maxCodes {
			if !r.addCode(hashOf(newSecret("")), &code{client: &client{ID: id}, expires: time.Now().Add(codeTTL)}) {
				t.Fatal("too few codes")
			}
		}
		if back := r.answer(asking(id), r.consent()); back.Get("error") != "temporarily_unavailable" {
			t.Errorf("%v", back)
		}
		time.Sleep(2 * time.Minute)
		r.sweep(time.Now())
		if len(r.codes) != 0 {
			t.Errorf("%d codes", len(r.codes))
		}
		// The grant that was not used for longest goes.
		var first, second reply
		for i := range maxGrantsPerPerson + 1 {
			time.Sleep(10 * time.Second)
			out := r.login(id)
			switch i {
			case 0:
				first = out
			case 1:
				second = out
				time.Sleep(time.Second)
				r.accepted(first.Access)
			}
		}
		if !r.accepted(first.Access) || r.accepted(second.Access) {
			t.Error("the wrong grant ended")
		}
		if n := len(r.Grants()); n != maxGrantsPerPerson {
			t.Errorf("%d grants", n)
		}
		if !r.recorded(ferrule.AccessTokenRevoked, false, "too many") {
			t.Error("not recorded")
		}
	})
}

// FuzzRegister checks that any registration is refused, or has only safe addresses.
func FuzzRegister(f *testing.F) {
	f.Add([]byte(`{"client_name":"a","redirect_uris":["http://localhost/cb"],"grant_types":["refresh_token"],"scope":"read"}`))
	f.Add([]byte(`{"redirect_uris":[null],"client_name":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRegistration(data)
		if err != nil {
			return
		}
		c := client{ID: "ferd_x", Name: r.Name}
		if len(r.Redirects) == 0 || r.Method != "none" || len(r.Name) > maxName || ferrule.CheckID(c.label()) != nil {
			t.Errorf("%+v, %s", r, c.label())
		}
		for _, uri := range r.Redirects {
			if checkRedirect(uri) != nil {
				t.Error(uri)
			}
		}
	})
}
