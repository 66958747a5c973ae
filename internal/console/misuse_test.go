package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// A form that a browser sends twice is one call: after a double click, a reload, or when the
// browser tries again. The next form is another decision.
func TestFormSentTwice(t *testing.T) {
	r := newCallRig(t)
	_, page := r.get(t, "/devices/arm", false)
	once := regexp.MustCompile(`name="once" value="(\w+)"`).FindAllStringSubmatch(page, -1)
	if len(once) < 2 || once[0][1] == once[1][1] {
		t.Fatalf("forms have no names of their own: %q", once)
	}
	light := url.Values{"tool": {"light"}, "arg.on": {"true"}, "once": {once[0][1]}}
	code, to := r.post(t, "/devices/arm/call", false, light)
	if code != http.StatusSeeOther || !strings.HasPrefix(to, "/devices/arm/calls/") {
		t.Fatalf("a reload of the page would send the form again: %d %s", code, to)
	}
	if _, again := r.post(t, "/devices/arm/call", false, light); again != to {
		t.Errorf("got %s, want the first call %s", again, to)
	}
	_, body := r.post(t, "/devices/arm/call", true, light)
	wants(t, body, "Done")
	if got := r.calls(); len(got) != 1 {
		t.Errorf("the device got %q", got)
	}
	light.Set("arg.on", "false") // the person changed the form
	r.post(t, "/devices/arm/call", true, light)
	light.Set("once", regexp.MustCompile(`name="once" value="(\w+)"`).FindStringSubmatch(body)[1])
	r.post(t, "/devices/arm/call", true, light)
	if got := r.calls(); len(got) != 3 {
		t.Errorf("other decisions were not sent: %q", got)
	}
}

// A yes is good for one call, for some minutes, and for the person who gave it.
func TestConfirmationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCallRig(t)
		ask := func() url.Values {
			_, body := r.post(t, "/devices/arm/call", true, url.Values{"tool": {"release_torque"}})
			token := regexp.MustCompile(`name="confirmed" value="(\w+)"`).FindStringSubmatch(body)
			if token == nil {
				t.Fatal(body)
			}
			return url.Values{"tool": {"release_torque"}, "args": {"{}"}, "confirmed": {token[1]}}
		}
		yes := ask()
		for range 3 {
			r.post(t, "/devices/arm/call", true, yes)
		}
		if got := r.calls(); len(got) != 1 {
			t.Errorf("one yes was sent as %q", got)
		}
		late, theirs := ask(), ask()
		r.name = "bert"
		_, body := r.post(t, "/devices/arm/call", true, theirs)
		wants(t, body, "Release torque on arm?")
		r.name = "anna"
		time.Sleep(confirmTime)
		_, body = r.post(t, "/devices/arm/call", true, late)
		wants(t, body, "Release torque on arm?")
		if got := r.calls(); len(got) != 1 {
			t.Errorf("a yes of another person or of earlier was sent: %q", got)
		}
	})
}

// Names of arguments show what is hidden in them, as values do.
func TestHiddenArgumentName(t *testing.T) {
	card := approvalCard{Approval: ferrule.Approval{Args: json.RawMessage("{\"elgna\u202e\":\"\u202ex\"}")}}
	if got := card.Arguments(); len(got) != 1 || got[0] != [2]string{`elgna\u202e`, `"\u202ex"`} {
		t.Errorf("got %q", got)
	}
}

// A viewer does not learn the addresses and paths of the configuration.
func TestListenersOfViewer(t *testing.T) {
	all := api.Listeners{HTTP: "http://x", TCP: []string{"10.0.0.1:1"}, URLs: []string{"http://10.0.0.2/secret"}, Config: "/etc/ferrule.yaml"}
	a, err := api.New(api.Parts{Devices: api.DeviceParts{Listeners: func() api.Listeners { return all }}})
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[ferrule.PersonRole]api.Listeners{ferrule.RoleOwner: all, ferrule.RoleViewer: {HTTP: "http://x"}} {
		if got, err := a.Listeners(t.Context(), role.LoggedIn("anna"), api.NoInput{}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s got %+v, %v", role, got, err)
		}
	}
}
