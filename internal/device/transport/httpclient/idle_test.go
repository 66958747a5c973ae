package httpclient

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleTime: a connection is closed once it has been idle for maxIdle, and not before.
func TestIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		l := newLink(&cfg, "board", endpoint{}, "", &place{})
		near, far := net.Pipe()
		var closed time.Time
		go func() {
			io.Copy(io.Discard, far)
			closed = time.Now()
		}()
		put := time.Now()
		l.tripper.idle.put(&conn{Conn: near, link: l})
		time.Sleep(2 * maxIdle)
		synctest.Wait()
		if idle := closed.Sub(put); idle != maxIdle {
			t.Errorf("closed after %v, want %v", idle, maxIdle)
		}
	})
}
