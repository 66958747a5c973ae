package mcpserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLaneEmpties: the running call is waited for, however many calls are waiting.
func TestLaneEmpties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane()
		if err := l.enter(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
		waiting, gone := context.WithCancel(t.Context())
		for range maxWaiting {
			go func() {
				if l.enter(waiting, t.Context()) == nil {
					t.Error("two calls are in the lane")
				}
			}()
		}
		synctest.Wait()
		time.AfterFunc(time.Second, gone)
		time.AfterFunc(2*time.Second, l.leave)
		began := time.Now()
		if !l.empties(t.Context()) || time.Since(began) != 2*time.Second {
			t.Errorf("waited for %v", time.Since(began))
		}
		if err := l.enter(t.Context(), t.Context()); err != nil {
			t.Error(err)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l.empties(late) {
			t.Error("the lane is not empty")
		}
	})
}
