package oauth

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// fabric is what nodes share. While it is cut, nobody hears of changes.
type fabric struct {
	mu       sync.Mutex
	cut      bool
	values   map[string][]byte
	watchers []func(string, []byte)
	largest  int
	synced   []func()
}

func (f *fabric) OnSync(fn func()) { f.synced = append(f.synced, fn) }

func (f *fabric) Put(key string, value []byte) error {
	f.mu.Lock()
	f.values[key] = value
	f.largest = max(f.largest, len(value))
	watchers := f.watchers
	if f.cut {
		watchers = nil
	}
	f.mu.Unlock()
	for _, fn := range watchers {
		fn(key, value)
	}
	return nil
}

func (f *fabric) Delete(key string) error { return f.Put(key, nil) }

func (f *fabric) Watch(fn func(string, []byte)) {
	f.mu.Lock()
	f.watchers = append(f.watchers, fn)
	all := maps.Clone(f.values)
	f.mu.Unlock()
	for key, value := range all {
		fn(key, value)
	}
}

// TestNodes checks that a token works on all nodes, and that it ends on all, whichever
// revokes it.
func TestNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fabric{values: make(map[string][]byte)}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		start := func(name string) *testServer {
			r := newTestServer(t, func(p *Parts) { p.Node, p.Shared = name, shared })
			wg.Go(func() { r.Run(ctx) })
			return r
		}
		a, b, c := start("a"), start("b"), start("c")
		everywhere := func(token string, want bool) {
			t.Helper()
			for i, r := range []*testServer{a, b, c} {
				if r.accepted(token) != want {
					t.Errorf("node %d: accepted is %t", i, !want)
				}
			}
		}
		id := a.register(callback)
		out := a.login(id)
		everywhere(out.Access, true) // as soon as it was answered
		credential, _ := c.verify(out.Access)
		next := a.token(refreshing(id, out.Refresh))
		everywhere(next.Access, true)
		everywhere(out.Access, true)
		if credential.Valid.Err() != nil {
			t.Error("a refresh ends streams on other nodes")
		}
		if again := b.token(refreshing(id, next.Refresh)); again.Status == http.StatusOK {
			t.Error("another node refreshes; it cannot know of a reuse")
		}
		if all := b.Grants(); len(all) != 1 || all[0].Login.Node != "a" {
			t.Fatalf("%+v", all)
		}
		if err := b.Revoke(owner, b.Grants()[0].Name); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		everywhere(next.Access, false)
		everywhere(out.Access, false)
		if credential.Valid.Err() == nil || len(a.Grants())+len(b.Grants())+len(c.Grants()) != 0 {
			t.Error("the grant is not gone on all nodes")
		}
		if a.token(refreshing(id, next.Refresh)).Status == http.StatusOK {
			t.Error("the grant is revoked, but refreshed")
		}

		// Another node removes the person, and this one hears of it only after a restart.
		out = a.login(id)
		everywhere(out.Access, true)
		shared.mu.Lock()
		shared.cut = true
		shared.mu.Unlock()
		c.EndGrants("maria", false)
		synctest.Wait()
		if c.accepted(out.Access) || !a.accepted(out.Access) {
			t.Error("a node that is cut off keeps what it knew")
		}
		shared.mu.Lock()
		shared.cut = false
		shared.mu.Unlock()
		restart := func(watcher int) {
			shared.watchers[watcher] = func(string, []byte) {}
			next := a.restart()
			a = next
			wg.Go(func() { next.Run(ctx) })
		}
		restart(0)
		shared.synced[3]()
		synctest.Wait()
		everywhere(out.Access, false)

		// The others have forgotten a grant, and hear of it when the node is back.
		out = a.login(id)
		clear(shared.values)
		restart(3)
		b.heard(sharedPrefix+b.Grants()[0].Name, nil)
		if b.accepted(out.Access) {
			t.Error("b has not forgotten it")
		}
		shared.synced[4]()
		synctest.Wait()
		everywhere(out.Access, true)
		a.EndGrants("maria", false)
		synctest.Wait()

		// Devices and names are bounded, so that the record fits.
		if shared.largest == 0 || shared.largest > 4<<10 {
			t.Errorf("%d bytes are shared", shared.largest)
		}
		// A node that never comes back leaves nothing.
		out = b.login(b.register(callback))
		gone := b.Grants()[0].Name
		stop()
		wg.Wait()
		time.Sleep(32 * 24 * time.Hour)
		a.sweep(time.Now())
		ctx, stop = context.WithCancel(t.Context())
		wg.Go(func() { a.Run(ctx) })
		synctest.Wait()
		if value := shared.values[sharedPrefix+gone]; value != nil {
			t.Error("the record of a grant that expired is still shared")
		}
		a.heard("oauth.x y", []byte(`{}`))
		a.heard("oauth.x", []byte(`nonsense`))
		a.heard("lease.x", []byte(`{}`))
		if len(a.foreign) != 0 {
			t.Errorf("%d foreign grants", len(a.foreign))
		}
		stop()
		wg.Wait()
	})
}

// TestForeignRecords checks that a record of another node that permits everything, or that is
// not one of ours, is ignored, and that the node that a grant belongs to removes what is left
// of it.
func TestForeignRecords(t *testing.T) {
	shared := &fabric{values: make(map[string][]byte)}
	r := newTestServer(t, func(p *Parts) { p.Shared = shared })
	good := sharedGrant{
		Node: "b", Client: "c", Label: "agent", Person: "maria", consented: consented{Scopes: viewer.Scopes}, Created: time.Now(), Expires: time.Now().Add(time.Hour),
		Access: []issued{{Expires: time.Now().Add(time.Hour), Scopes: viewer.Scopes}},
	}
	for name, change := range map[string]func(g *sharedGrant){
		"no scopes":                func(g *sharedGrant) { g.Scopes = 0 },
		"a token without scopes":   func(g *sharedGrant) { g.Access = []issued{{}} },
		"a token with more scopes": func(g *sharedGrant) { g.Access = []issued{{Scopes: owner.Scopes}} },
		"nobody":                   func(g *sharedGrant) { g.Person = "" },
		"an unclean person":        func(g *sharedGrant) { g.Person = "a\x1b[2J" },
		"an unclean label":         func(g *sharedGrant) { g.Label = "a\nb" },
		"a wrong pattern":          func(g *sharedGrant) { g.Devices = "a[" },
		"a wrong device":           func(g *sharedGrant) { g.Device = "a b" },
		"too many tokens":          func(g *sharedGrant) { g.Access = make([]issued, maxAccess+1) },
	} {
		bad := good
		change(&bad)
		r.heard(sharedPrefix+"grant-x", mustJSON(t, bad))
		if len(r.foreign) != 0 {
			t.Errorf("%s: it is accepted", name)
		}
	}
	r.heard(sharedPrefix+"grant-x", mustJSON(t, good))
	if len(r.foreign) != 1 {
		t.Error("a good record is refused")
	}
	own := good
	own.Node, own.Revoked = r.parts.Node, true
	shared.values[sharedPrefix+"grant-y"] = mustJSON(t, own)
	r.heard(sharedPrefix+"grant-y", mustJSON(t, own))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r.Run(ctx)
	if shared.values[sharedPrefix+"grant-y"] != nil {
		t.Error("what another node revoked stays in the shared records")
	}
}

// TestIssuerPerson checks that somebody who logged in through an external issuer has to do so
// again, however often the tokens are refreshed.
func TestIssuerPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestServer(t, nil)
		for name, lasts := range map[string]bool{"maria": true, "corp:maria": false} {
			r.people.who = person(name, "owner", "admin")
			id := r.register(callback)
			out := r.login(id)
			for range 13 {
				time.Sleep(12*time.Hour + 50*time.Minute)
				if out = r.token(refreshing(id, out.Refresh)); out.Status != http.StatusOK {
					t.Fatalf("%s: %+v", name, out)
				}
			}
			time.Sleep(2 * time.Hour)
			last := r.token(refreshing(id, out.Refresh))
			if (last.Status == http.StatusOK) != lasts || lasts != r.accepted(last.Access) {
				t.Errorf("%s: after a week: %+v", name, last)
			}
		}
	})
}

// TestSharedSize checks that the largest grant fits into a shared record.
func TestSharedSize(t *testing.T) {
	g := largestGrant()
	data := mustJSON(t, g)
	if len(data) > 4<<10 {
		t.Errorf("%d bytes", len(data))
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func largestGrant() sharedGrant {
	long := func(n int) string { return strings.Repeat("x", n) }
	g := sharedGrant{
		Node: long(ferrule.MaxID), Client: long(maxURL), Label: long(ferrule.MaxID), Person: long(300), Created: time.Now(), Expires: time.Now(),
		consented: consented{Scopes: owner.Scopes, Devices: long(maxDevices), Offline: true},
	}
	for range maxAccess {
		g.Access = append(g.Access, issued{Expires: time.Now(), Scopes: owner.Scopes})
	}
	return g
}
