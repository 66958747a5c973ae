package tokens

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/records"
)

func openParts(t *testing.T, file string, shared records.Synced) *Store {
	t.Helper()
	s, err := Open(Parts{
		File: file, Shared: shared, Taken: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler),
		Record: func(ferrule.Principal, ferrule.AccessEvent, string, string, ferrule.Code) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestChangeMeetsAnother: a change of another node waits until one of this node is in memory
// and in the file, and what counts then is in the file too. Otherwise a token that is revoked
// here could be back after a restart.
func TestChangeMeetsAnother(t *testing.T) {
	s := openParts(t, filepath.Join(t.TempDir(), "tokens"), nil)
	person := ferrule.Principal{Role: ferrule.Person, Name: "ada"}
	c, err := s.Add(person, New{Name: "agent", Scopes: ferrule.LimitTo(ferrule.ScopeRead)})
	if err != nil {
		t.Fatal(err)
	}
	r := c.record
	r.Version++
	_, r.Hash = newSecret()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	s.changing.Lock()
	go func() {
		defer close(heard)
		s.hear("agent", data)
	}()
	select {
	case <-heard:
		t.Error("it does not wait for the change that is being made")
	case <-time.After(100 * time.Millisecond):
	}
	s.changing.Unlock()
	<-heard
	if _, err := s.Revoke(person, "agent"); err != nil {
		t.Fatal(err)
	}
	stored, err := parse("agent", s.file.All()[tokenKey+"agent"])
	if err != nil || stored != s.byName["agent"].record || !stored.Revoked {
		t.Fatalf("the file has %+v, and %+v counts: %v", stored, s.byName["agent"].record, err)
	}
}

// hanging is shared records that cannot be written.
type hanging struct {
	mu      sync.Mutex
	deleted []string
	wait    time.Duration
	err     error
	watch   func(string, []byte)
	synced  func()
}

func (h *hanging) Put(string, []byte) error {
	time.Sleep(h.wait)
	return h.err
}

func (h *hanging) Delete(key string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted = append(h.deleted, key)
	return h.err
}

func (h *hanging) Watch(fn func(string, []byte)) { h.watch = fn }
func (h *hanging) OnSync(fn func())              { h.synced = fn }

// TestForgets: the record of a token that was revoked long ago goes, also from the shared
// records, and does not come back from them.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &hanging{}
		file := filepath.Join(t.TempDir(), "tokens")
		s := openParts(t, file, shared)
		s.Connect()
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		wg.Go(func() { s.Run(ctx) })
		person := ferrule.Principal{Role: ferrule.Person, Name: "ada"}
		for _, name := range []string{"old", "kept"} {
			if _, err := s.Add(person, New{Name: name, Scopes: ferrule.LimitTo(ferrule.ScopeRead)}); err != nil {
				t.Fatal(err)
			}
		}
		c, err := s.Revoke(person, "old")
		if err != nil {
			t.Fatal(err)
		}
		revoked, _ := json.Marshal(c.record)
		shared.watch(tokenKey+"old", revoked)
		time.Sleep(revokedAge - time.Hour)
		known := func(name string) bool {
			s.mu.RLock()
			defer s.mu.RUnlock()
			return s.byName[name] != nil
		}
		if !known("old") {
			t.Error("a token that was revoked is forgotten too early")
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		gone := func() {
			t.Helper()
			s.mu.RLock()
			secrets := len(s.byHash)
			s.mu.RUnlock()
			if known("old") || secrets != 1 || s.file.All()[tokenKey+"old"] != nil || !known("kept") {
				t.Error("the record of the revoked token is still here, or the other one is gone")
			}
		}
		gone()
		deleted := func(n int) {
			t.Helper()
			synctest.Wait()
			count := 0
			shared.mu.Lock()
			defer shared.mu.Unlock()
			for _, key := range shared.deleted {
				if key == tokenKey+"old" {
					count++
				}
			}
			if count != n {
				t.Errorf("it was deleted %d times from the shared records, want %d", count, n)
			}
		}
		deleted(1)
		shared.watch(tokenKey+"old", nil)
		shared.watch(tokenKey+"old", revoked) // a node that was away has it still
		gone()
		deleted(2)
	})
}

// TestStopWithoutNATS: Run saves the last uses, and ends soon though they cannot be shared.
func TestStopWithoutNATS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &hanging{wait: time.Second, err: context.DeadlineExceeded}
		s := openParts(t, filepath.Join(t.TempDir(), "tokens"), shared)
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { s.Run(ctx) })
		for i := range 20 {
			c, err := s.Add(ferrule.Principal{Role: ferrule.Person, Name: "ada"}, New{Name: fmt.Sprintf("agent-%d", i), Scopes: ferrule.LimitTo(ferrule.ScopeRead)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Verify(ctx, c.Secret.Reveal(), identity.Request{From: "10.0.0.1", Time: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		stop()
		wg.Wait()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("the stop takes %v", took)
		}
		for i := range 20 {
			if s.file.All()[fmt.Sprintf("%sagent-%d", useKey, i)] == nil {
				t.Errorf("the use of agent-%d is not saved", i)
			}
		}
	})
}

// TestUsesAreSavedLater: uses that the disk refuses are saved when it works again.
func TestUsesAreSavedLater(t *testing.T) {
	dir := t.TempDir()
	s := openParts(t, filepath.Join(dir, "tokens"), nil)
	c, err := s.Add(ferrule.Principal{Role: ferrule.Person, Name: "ada"}, New{Name: "claude", Scopes: ferrule.LimitTo(ferrule.ScopeRead)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(t.Context(), c.Secret.Reveal(), identity.Request{From: "10.0.0.1", Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	s.file.Close() // it fails like a full disk
	s.saveUses()
	if s.file, _, err = records.Open(filepath.Join(dir, "tokens")); err != nil {
		t.Fatal(err)
	}
	s.saveUses()
	if s.file.All()[useKey+"claude"] == nil {
		t.Error("the use is lost")
	}
}
