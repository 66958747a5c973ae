package poller_test

import (
	"encoding/json"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
)

// TestSeen checks that each read of a state is published or seen, so that somebody who waits
// knows that it holds, and that a failed read is neither.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []ferrule.Reading
		answer := "true"
		every := ferrule.Duration(time.Second)
		w := open(t, func(p *poller.Parts) {
			p.Polls = map[string]func(*ferrule.Manifest) []ferrule.Poll{online("d").Protocol: func(*ferrule.Manifest) []ferrule.Poll {
				return []ferrule.Poll{{Name: "door", Tool: "look", Every: &every, Parse: func(json.RawMessage) ([]ferrule.Measurement, error) {
					return []ferrule.Measurement{{Signal: "door", Values: []float64{1}, State: true}}, nil
				}}}
			}}
			p.Seen = func(r ferrule.Reading) {
				if err := r.Check(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, r)
			}
		})
		w.set(func() {
			w.answer = func(*ferrule.Call) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				if answer == "" {
					return "", ferrule.Errorf(ferrule.Failed, "broken")
				}
				return answer, nil
			}
		})
		manifest := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}}}
		w.Put(online("d"), manifest)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		mu.Lock()
		if len(seen) < 8 {
			t.Fatalf("seen %d times in 10 s", len(seen))
		}
		signal := seen[0].Batches[0].Signal
		for i, r := range seen {
			b := r.Batches[0]
			if r.Device != "d" || !b.State || len(b.Samples) != 1 || b.Samples[0].Value != 1 || i > 0 && !b.Samples[0].Time.After(seen[i-1].Batches[0].Samples[0].Time) {
				t.Errorf("seen %+v", r)
			}
		}
		answer, seen = "", nil
		mu.Unlock()
		if !w.Polls("d", signal) || w.Polls("d", "other") || w.Polls("x", signal) {
			t.Errorf("Polls is wrong about %s", signal)
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		if len(seen) > 1 { // one read may be under way
			t.Errorf("seen %d times while the device fails", len(seen))
		}
		mu.Unlock()
		w.Put(in(ferrule.StateOffline, "d"), manifest)
		if w.Polls("d", signal) {
			t.Error("an offline device is polled")
		}
	})
}

// TestHeardCurrent checks that a reported value is the present one until the device is lost.
func TestHeardCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hear(t, filepath.Join(t.TempDir(), "history.db"), &stream{more: make(chan struct{})}, never)
		defer h.end()
		h.heard.Put(device("door", ferrule.StateOnline), nil)
		if _, ok := h.heard.Current("door", "open"); ok {
			t.Error("nothing was reported")
		}
		h.heard.Report("door", time.Now(), heardValue("open", 1, true))
		time.Sleep(time.Hour)
		l, ok := h.heard.Current("door", "open")
		if !ok || l.Value != 1 || !l.State || time.Since(l.Time) != time.Hour {
			t.Errorf("got %+v, %v", l, ok)
		}
		h.heard.Put(device("door", ferrule.StateOffline), nil)
		if _, ok := h.heard.Current("door", "open"); ok {
			t.Error("the device is offline")
		}
		h.heard.Put(device("door", ferrule.StateOnline), nil)
		if _, ok := h.heard.Current("door", "open"); ok {
			t.Error("it has said nothing since it was lost")
		}
	})
}
