package tokens_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/records"
	"github.com/ferrulehq/ferrule/internal/guard/tokens"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

var ada = ferrule.Principal{Role: ferrule.Person, Name: "ada"}

// readChange permits to read and to change.
var readChange = ferrule.LimitTo(ferrule.ScopeChange)

// store is a Store whose events are kept.
type store struct {
	*tokens.Store
	t    testing.TB
	file string

	mu     sync.Mutex
	events []string
}

func open(t testing.TB, file string, shared records.Synced) *store {
	t.Helper()
	s := &store{t: t, file: file}
	all, err := tokens.Open(tokens.Parts{
		File: file, Shared: shared, Taken: func(name string) bool { return name == "configured" }, Log: slog.New(slog.DiscardHandler),
		Record: func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, _ ferrule.Code) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, fmt.Sprintf("%s %s %s %s", who, event, from, message))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	s.Store = all
	s.Connect()
	return s
}

func newStore(t testing.TB) *store { return open(t, filepath.Join(t.TempDir(), "tokens"), nil) }

// reopen closes a store and opens its file again.
func (s *store) reopen() *store {
	s.t.Helper()
	s.Close()
	return open(s.t, s.file, nil)
}

func (s *store) add(n tokens.New) string {
	s.t.Helper()
	c, err := s.Add(ada, n)
	if err != nil {
		s.t.Fatal(err)
	}
	return c.Secret.Reveal()
}

// use verifies a secret from an address.
func (s *store) use(secret, from string) (identity.Credential, error) {
	return s.Verify(context.Background(), secret, identity.Request{From: from, Time: time.Now()})
}

func (s *store) accepts(secret string) context.Context {
	s.t.Helper()
	c, err := s.use(secret, "10.0.0.1")
	if err != nil || c.Valid.Err() != nil {
		s.t.Fatalf("a valid token: %v", err)
	}
	return c.Valid
}

func (s *store) refuses(secret string, want error) {
	s.t.Helper()
	if _, err := s.use(secret, "10.0.0.1"); !errors.Is(err, want) {
		s.t.Errorf("got %v, want %v", err, want)
	}
}

func TestStore(t *testing.T) {
	s := newStore(t)
	secret := s.add(tokens.New{Name: "claude", Scopes: readChange, Devices: []string{"kitchen-*", "robot"}})
	if !regexp.MustCompile(`^fer_[A-Za-z0-9_-]{43}$`).MatchString(secret) {
		t.Errorf("the secret is %q", secret)
	}
	other := s.add(tokens.New{Name: "codex", Scopes: ferrule.LimitTo(ferrule.ScopeMetrics)})
	for range 2 {
		c, err := s.use(secret, "10.0.0.1")
		want := ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthToken, Scopes: readChange, Devices: "kitchen-*,robot", TokenID: s.List()[0].ID}
		if err != nil || c.Who != want || c.Valid.Err() != nil || c.Device != "" {
			t.Errorf("got %+v, %v", c, err)
		}
		for _, wrong := range []string{"", "fer_", secret[:len(secret)-1], secret + "A", strings.ToUpper(secret), "fer_" + strings.Repeat("A", 43)} {
			s.refuses(wrong, identity.ErrUnknown)
		}
		s = s.reopen()
	}
	data, err := os.ReadFile(s.file)
	if err != nil || strings.Contains(string(data), secret) || strings.Contains(string(data), secret[4:]) || !strings.Contains(string(data), "claude") {
		t.Errorf("the file has the secret: %v", err)
	}
	all := s.List()
	if len(all) != 2 || s.Len() != 2 || all[0].Name != "claude" || fmt.Sprint(all[0].Scopes, all[0].Devices) != "[read change] [kitchen-* robot]" || !all[0].Expires.IsZero() {
		t.Errorf("got %+v", all)
	}

	valid := s.accepts(secret)
	if _, err := s.Revoke(ada, "claude"); err != nil {
		t.Fatal(err)
	}
	if valid.Err() == nil {
		t.Error("what is open goes on after the token was revoked")
	}
	for range 2 {
		s.refuses(secret, identity.ErrUnknown)
		s.accepts(other)
		if s.Len() != 1 {
			t.Errorf("got %+v", s.List())
		}
		s = s.reopen()
	}
	// The name can be used again, and the new token was not used yet.
	again := s.add(tokens.New{Name: "claude", Scopes: readChange})
	if all := s.List(); !all[0].Used.IsZero() || all[0].From != "" {
		t.Errorf("got %+v", all[0])
	}
	s.refuses(secret, identity.ErrUnknown)
	s.accepts(again)
}

// TestTokenID: a token that is rotated stays the same on every node and after a restart, and
// another one of the same name is another one.
func TestTokenID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fakeShared{values: make(map[string][]byte)}
		dir := t.TempDir()
		a, b := open(t, filepath.Join(dir, "a"), shared), open(t, filepath.Join(dir, "b"), shared)
		id := func(s *store, secret string) string {
			t.Helper()
			c, err := s.use(secret, "192.0.2.1")
			if err != nil || c.Who.TokenID == "" {
				t.Fatalf("got %+v, %v", c, err)
			}
			return c.Who.TokenID
		}
		ended := func(name, id, want string) {
			t.Helper()
			for _, s := range []*store{a, b} {
				if ended, known := s.Ended(name, id); fmt.Sprint(ended, known) != want {
					t.Errorf("%s %s: ended and known are %t %t, want %s", name, id, ended, known, want)
				}
			}
		}
		secret := a.add(tokens.New{Name: "claude", Scopes: readChange})
		first := id(a, secret)
		ended("claude", first, "false true")
		time.Sleep(time.Hour)
		c, err := b.Rotate(ada, "claude", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*store{a, b, a.reopen()} {
			if old, now := id(s, secret), id(s, c.Secret.Reveal()); old != first || now != first || s.List()[0].ID != first {
				t.Errorf("rotating %s makes it %s, with the old secret %s", first, now, old)
			}
		}
		a = open(t, filepath.Join(dir, "a"), shared)
		if _, err := b.Revoke(ada, "claude"); err != nil {
			t.Fatal(err)
		}
		ended("claude", first, "true true")
		time.Sleep(time.Microsecond)
		second := id(b, a.add(tokens.New{Name: "claude", Scopes: readChange}))
		if second == first {
			t.Error("both tokens have the same ID")
		}
		ended("claude", first, "true true")
		ended("claude", second, "false true")
		ended("claude", "not an ID", "true true")
		ended("claude", strconv.FormatInt(time.Now().Add(time.Second).UnixMicro(), 36), "true false") // it may be new on another node
		ended("codex", first, "true false")
	})
}

// TestConfigIDKey: the key is the same after a restart, and is not shared.
func TestConfigIDKey(t *testing.T) {
	shared := &fakeShared{values: make(map[string][]byte)}
	s := open(t, filepath.Join(t.TempDir(), "tokens"), shared)
	key := s.ConfigIDKey()
	if len(key) != 32 || !bytes.Equal(s.ConfigIDKey(), key) || !bytes.Equal(s.reopen().ConfigIDKey(), key) {
		t.Error("the key changes")
	}
	if other := open(t, filepath.Join(t.TempDir(), "tokens"), shared); bytes.Equal(other.ConfigIDKey(), key) || len(shared.values) != 0 {
		t.Errorf("the key is shared: %q", shared.values)
	}
}

// TestRefusedIsNamed: it is known whose secret is refused, also after a restart, unless
// another token has the name.
func TestRefusedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		named := func(secret, name string, want error) {
			t.Helper()
			c, err := s.use(secret, "192.0.2.1")
			if err != want || c.Who.Name != name || c.Valid != nil {
				t.Errorf("got %+v, %v; want %q, %v", c, err, name, want)
			}
		}
		revoked := s.add(tokens.New{Name: "claude", Scopes: readChange})
		expired := s.add(tokens.New{Name: "codex", Scopes: readChange, Expires: time.Hour})
		if _, err := s.Revoke(ferrule.Principal{Role: ferrule.Person}, "claude"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for range 2 {
			named(revoked, "claude", identity.ErrUnknown)
			named(expired, "codex", identity.ErrExpired)
			s = s.reopen()
		}
		s.add(tokens.New{Name: "claude", Scopes: readChange})
		named(revoked, "", identity.ErrUnknown)
	})
}

// TestExpiry: a token and what is open with it end when it expires.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		secret := s.add(tokens.New{Name: "claude", Scopes: readChange, Expires: 90 * 24 * time.Hour})
		valid := s.accepts(secret)
		// The machine may have slept, and its timers with it.
		if _, err := s.Verify(t.Context(), secret, identity.Request{Time: time.Now().Add(90 * 24 * time.Hour)}); !errors.Is(err, identity.ErrExpired) {
			t.Errorf("got %v", err)
		}
		time.Sleep(90*24*time.Hour - time.Second)
		s.accepts(secret)
		time.Sleep(time.Second)
		synctest.Wait()
		if valid.Err() == nil {
			t.Error("what is open goes on after the token expired")
		}
		s.refuses(secret, identity.ErrExpired)
		if all := s.List(); !all[0].Expired {
			t.Errorf("got %+v", all)
		}
		s = s.reopen()
		s.refuses(secret, identity.ErrExpired)

		// A rotated one lives as long again; the expired secret stays so.
		c, err := s.Rotate(ada, "claude", 10*time.Minute)
		if err != nil || c.Token.Expired || !c.Token.Overlap.IsZero() || time.Until(c.Token.Expires) < 89*24*time.Hour {
			t.Errorf("got %+v, %v", c.Token, err)
		}
		s.refuses(secret, identity.ErrUnknown)
		s.accepts(c.Secret.Reveal())
		s.Revoke(ada, "claude")
	})
}

// TestRotate: both secrets are accepted during the overlap, and what is open with the old
// one goes on as long.
func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		old := s.add(tokens.New{Name: "claude", Scopes: readChange})
		valid := s.accepts(old)
		c, err := s.Rotate(ada, "claude", 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		fresh := c.Secret.Reveal()
		if fresh == old || valid.Err() != nil || time.Until(c.Token.Overlap).Round(time.Minute) != 10*time.Minute {
			t.Errorf("got %+v, %v", c.Token, valid.Err())
		}
		freshValid := s.accepts(fresh)
		time.Sleep(10*time.Minute - time.Second)
		s.accepts(old)
		s.reopen().accepts(old)
		s = s.reopen()
		valid = s.accepts(old)
		time.Sleep(time.Second)
		synctest.Wait()
		s.refuses(old, identity.ErrExpired)
		if valid.Err() == nil || freshValid.Err() != nil {
			t.Error("the wrong streams have ended")
		}
		s.accepts(fresh)

		// Without an overlap the old secret ends at once.
		valid = s.accepts(fresh)
		c, err = s.Rotate(ada, "claude", 0)
		if err != nil || valid.Err() == nil {
			t.Errorf("got %v, %v", err, valid.Err())
		}
		s.refuses(fresh, identity.ErrUnknown)
		s.accepts(c.Secret.Reveal())
	})
}

// fakeShared is what two nodes share. It is synchronous.
type fakeShared struct {
	mu       sync.Mutex
	values   map[string][]byte
	watchers []func(string, []byte)
	synced   []func()
	down     bool
}

func (f *fakeShared) Put(key string, value []byte) error {
	f.mu.Lock()
	if f.down {
		f.mu.Unlock()
		return errors.New("NATS cannot be reached")
	}
	f.values[key] = value
	all := slices.Clone(f.watchers)
	f.mu.Unlock()
	for _, fn := range all {
		fn(key, value)
	}
	return nil
}
func (f *fakeShared) Delete(key string) error { return f.Put(key, nil) }
func (f *fakeShared) OnSync(fn func())        { f.synced = append(f.synced, fn) }
func (f *fakeShared) Watch(fn func(string, []byte)) {
	f.mu.Lock()
	all := maps.Clone(f.values)
	f.watchers = append(f.watchers, fn)
	f.mu.Unlock()
	for key, value := range all {
		fn(key, value)
	}
}

// TestNodes: a token counts on all nodes, and a node that was away cannot bring one back.
func TestNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fakeShared{values: make(map[string][]byte)}
		dir := t.TempDir()
		a, b := open(t, filepath.Join(dir, "a"), shared), open(t, filepath.Join(dir, "b"), shared)
		secret := a.add(tokens.New{Name: "claude", Scopes: readChange})
		b.accepts(secret)
		old := shared.values["token.claude"]
		before, err := os.ReadFile(b.file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := b.Rotate(ada, "claude", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		a.accepts(secret)
		valid := a.accepts(c.Secret.Reveal())
		if _, err := b.Revoke(ada, "claude"); err != nil || valid.Err() == nil {
			t.Errorf("the other node goes on: %v", err)
		}
		a.refuses(c.Secret.Reveal(), identity.ErrUnknown)

		// A node that comes back with an old file learns what happened.
		stale := filepath.Join(dir, "stale")
		if err := os.WriteFile(stale, before, 0o600); err != nil {
			t.Fatal(err)
		}
		away := open(t, stale, nil)
		away.accepts(secret)
		away.Close()
		away = open(t, stale, shared)
		for _, fn := range shared.synced {
			fn()
		}
		synctest.Wait()
		for _, s := range []*store{a, b, away} {
			s.refuses(secret, identity.ErrUnknown)
		}
		// Nor does a record that is older than what they know, and it is corrected.
		shared.Put("token.claude", old)
		synctest.Wait()
		for _, s := range []*store{a, b, away} {
			s.refuses(secret, identity.ErrUnknown)
		}
		if !strings.Contains(string(shared.values["token.claude"]), `"revoked":true`) {
			t.Errorf("the shared record is %s", shared.values["token.claude"])
		}

		// What was changed while the others were out of reach is shared later.
		shared.down = true
		c, err = a.Add(ada, tokens.New{Name: "codex", Scopes: readChange})
		if err != nil || !strings.Contains(c.Note, "Other nodes do not know this yet") {
			t.Errorf("got %+v, %v", c, err)
		}
		b.refuses(c.Secret.Reveal(), identity.ErrUnknown)
		shared.down = false
		for _, fn := range shared.synced {
			fn()
		}
		synctest.Wait()
		b.accepts(c.Secret.Reveal())

		// A record that permits everything is not one of ours.
		for _, bad := range []string{"x", `{"name":"evil","version":1,"hash":"` + strings.Repeat("0", 64) + `","scopes":"read"}`, `{"name":"evil","version":1,"hash":"` + strings.Repeat("1", 64) + `"}`, `{"name":"other","version":1,"revoked":true}`} {
			shared.Put("token.evil", []byte(bad))
			if a.Len() != 1 {
				t.Errorf("it is accepted: %s", bad)
			}
		}
	})
}

// TestUses: the first use of a token and uses from other addresses are recorded. The last
// one is saved, and known on all nodes.
func TestUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fakeShared{values: make(map[string][]byte)}
		dir := t.TempDir()
		s, other := open(t, filepath.Join(dir, "s"), shared), open(t, filepath.Join(dir, "other"), shared)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		secret := s.add(tokens.New{Name: "claude", Scopes: readChange})
		for _, from := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"} {
			if _, err := s.use(secret, from); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{
			"person:ada token_added  token claude added with scopes read change",
			"agent:claude token_used 10.0.0.1 used for the first time",
			"agent:claude token_used 10.0.0.2 used from another address",
		}
		if !slices.Equal(s.events, want) {
			t.Errorf("got %q", s.events)
		}
		before := s.size()
		time.Sleep(59 * time.Second)
		if s.size() != before || !other.List()[0].Used.IsZero() {
			t.Error("a use was saved at once")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if u := other.List()[0]; u.From != "10.0.0.2" || u.Used.IsZero() {
			t.Errorf("the other node has %+v", u)
		}
		last := time.Now()
		s.use(secret, "10.0.0.3")
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		s = s.reopen()
		if u := s.List()[0]; u.From != "10.0.0.3" || !u.Used.Equal(last) {
			t.Errorf("got %+v", u)
		}
		s.use(secret, "10.0.0.3")
		if len(s.events) > 0 {
			t.Errorf("after a restart: %q", s.events)
		}
		// Many addresses need no more memory.
		for i := range 1000 {
			s.use(secret, fmt.Sprintf("10.1.%d.%d", i/250, i%250))
		}
		s.mu.Lock()
		s.events = nil
		s.mu.Unlock()
		s.Revoke(ada, "claude")
		if got := s.events; len(got) != 1 || got[0] != "person:ada token_revoked  token claude revoked" {
			t.Errorf("got %q", got)
		}
	})
}

func (s *store) size() int64 {
	s.t.Helper()
	info, err := os.Stat(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Size()
}

// TestRefusedChanges: what cannot be, and what an agent may not give itself.
func TestRefusedChanges(t *testing.T) {
	s := newStore(t)
	s.add(tokens.New{Name: "claude", Scopes: readChange})
	s.add(tokens.New{Name: "kitchen", Scopes: readChange, Devices: []string{"kitchen-*"}})
	agent := ferrule.Principal{Role: ferrule.Agent, Name: "helper", Scopes: ferrule.LimitTo(ferrule.ScopeAdmin), Devices: "kitchen-*,hall"}
	weak := ferrule.Principal{Role: ferrule.Agent, Name: "weak", Scopes: ferrule.LimitTo(ferrule.ScopeRead)}
	for name, test := range map[string]struct {
		change func() (tokens.Changed, error)
		want   string
	}{
		"name":          {func() (tokens.Changed, error) { return s.Add(ada, tokens.New{Name: "a b", Scopes: readChange}) }, `name "a b" must be letters`},
		"twice":         {func() (tokens.Changed, error) { return s.Add(ada, tokens.New{Name: "claude", Scopes: readChange}) }, "there is already a token claude"},
		"in the config": {func() (tokens.Changed, error) { return s.Add(ada, tokens.New{Name: "configured", Scopes: readChange}) }, "auth.tokens"},
		"pattern":       {func() (tokens.Changed, error) { return s.Add(ada, tokens.New{Name: "x", Devices: []string{"["}}) }, "invalid device pattern"},
		"long": {func() (tokens.Changed, error) {
			return s.Add(ada, tokens.New{Name: "x", Devices: []string{strings.Repeat("a", 2000)}})
		}, "limit is 1024"},
		"forever": {func() (tokens.Changed, error) {
			return s.Add(ada, tokens.New{Name: "x", Scopes: readChange, Expires: 1 << 62})
		}, "at most ten years"},
		"rotate nobody": {func() (tokens.Changed, error) { return s.Rotate(ada, "nobody", 0) }, `there is no token "nobody"`},
		"revoke nobody": {func() (tokens.Changed, error) { return s.Revoke(ada, "nobody") }, `there is no token "nobody"`},
		"revoke config": {func() (tokens.Changed, error) { return s.Revoke(ada, "configured") }, "is in auth.tokens"},
		"overlap":       {func() (tokens.Changed, error) { return s.Rotate(ada, "claude", 8*24*time.Hour) }, "the overlap can be at most 7 days"},
		"more devices":  {func() (tokens.Changed, error) { return s.Add(agent, tokens.New{Name: "x", Scopes: readChange}) }, "more than agent:helper may do"},
		"other devices": {func() (tokens.Changed, error) {
			return s.Add(agent, tokens.New{Name: "x", Scopes: readChange, Devices: []string{"*"}})
		}, "more than agent:helper may do"},
		"rotate another": {func() (tokens.Changed, error) { return s.Rotate(agent, "claude", 0) }, "more than agent:helper may do"},
		"more scopes":    {func() (tokens.Changed, error) { return s.Add(weak, tokens.New{Name: "x", Scopes: readChange}) }, "more than agent:weak may do"},
	} {
		if c, err := test.change(); err == nil || !strings.Contains(err.Error(), test.want) || c.Secret != "" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := s.Rotate(agent, "kitchen", 0); err != nil {
		t.Errorf("a token of its own devices: %v", err)
	}
	if s.Len() != 2 {
		t.Errorf("got %+v", s.List())
	}
	// A token that cannot be saved does not exist.
	s.Close()
	if c, err := s.Add(ada, tokens.New{Name: "unsaved", Scopes: readChange}); err == nil || c.Secret != "" || s.Len() != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := s.Revoke(ada, "claude"); err == nil || !strings.Contains(err.Error(), "is revoked, but would be accepted again after a restart") || s.Len() != 1 {
		t.Errorf("got %v", err)
	}
}

// TestFileMode: other users cannot read even the hashes.
func TestFileMode(t *testing.T) {
	s := newStore(t)
	s.add(tokens.New{Name: "claude", Scopes: readChange})
	if info, err := os.Stat(s.file); err != nil || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
}

// TestCost measures a check among many tokens.
func TestCost(t *testing.T) {
	figure.Only(t)
	s := newStore(t)
	var secret string
	for i := range 500 {
		secret = s.add(tokens.New{Name: fmt.Sprintf("agent-%d", i), Scopes: readChange})
	}
	const checks = 1000
	best := time.Hour
	for range 50 { // other programs may take the processor meanwhile
		start := time.Now()
		for range checks {
			if _, err := s.use(secret, "10.0.0.1"); err != nil {
				t.Fatal(err)
			}
		}
		best = min(best, time.Since(start)/checks)
	}
	figure.AtMost(t, "check of a token among 500", best, 5*time.Microsecond)
}

// TestRotateUnderLoad: callers on two nodes lose no call while their token is rotated again
// and again.
func TestRotateUnderLoad(t *testing.T) {
	shared := &fakeShared{values: make(map[string][]byte)}
	dir := t.TempDir()
	nodes := []*store{open(t, filepath.Join(dir, "a"), shared), open(t, filepath.Join(dir, "b"), shared)}
	var secret atomic.Value
	secret.Store(nodes[0].add(tokens.New{Name: "claude", Scopes: readChange}))
	var done atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer done.Store(true)
	counts := make([]atomic.Int64, 4)
	for i := range counts {
		wg.Go(func() {
			for !done.Load() {
				if _, err := nodes[i%2].use(secret.Load().(string), fmt.Sprintf("10.0.0.%d", i)); err != nil {
					t.Errorf("a call was lost: %v", err)
					done.Store(true)
				}
				counts[i].Add(1)
			}
		})
	}
	for round := range 8 {
		for i := range counts {
			for before := counts[i].Load(); counts[i].Load() < before+2 && !done.Load(); {
				runtime.Gosched()
			}
		}
		c, err := nodes[round%2].Rotate(ada, "claude", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].List()
		secret.Store(c.Secret.Reveal())
	}
}
