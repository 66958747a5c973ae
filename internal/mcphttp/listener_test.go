package mcphttp

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7/32", "[::ffff:192.0.2.7]:80": "192.0.2.7/32", "[2001:db8::1]:80": "2001:db8::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "invalid Prefix",
		"192.0.2.7": "192.0.2.7/32", "2001:db8::1": "2001:db8::/64", "": "invalid Prefix",
	} {
		if got := HostOf(address).String(); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

// TestListener: connections that say nothing make room for others, connections in use are
// kept, and the number of both is limited.
func TestListener(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Accepted(r.Context()) }))
	limited := NewListener(server.Listener, ConnLimits{Total: 20, PerHost: 12, Waiting: 4})
	server.Listener, server.Config.ConnContext = limited, ConnContext
	server.Start()
	defer server.Close()
	at := server.Listener.Addr().String()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	ask := func(conn net.Conn) bool {
		t.Helper()
		conn.SetDeadline(time.Now().Add(wait.Ample))
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return false
		}
		_, err := conn.Read(make([]byte, 4096))
		return err == nil
	}
	counts := func() (open, waiting, hosts int) {
		limited.mu.Lock()
		defer limited.mu.Unlock()
		return limited.open, limited.waiting.Len(), len(limited.hosts)
	}
	used := make([]net.Conn, 8)
	for i := range used {
		if used[i] = dial(); !ask(used[i]) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	silent := make([]net.Conn, 50)
	for i := range silent {
		silent[i] = dial()
	}
	silent[0].SetReadDeadline(time.Now().Add(wait.Ample))
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest silent connection: %v", err)
	}
	wait.For(t, "the silent connections above the limit are closed", func() bool { open, waiting, _ := counts(); return open == 12 && waiting == 4 })
	for i, conn := range used {
		if !ask(conn) {
			t.Errorf("connection %d in use was closed", i)
		}
	}
	if conn := dial(); !ask(conn) {
		t.Error("a new client is locked out")
	}
	for range 10 { // all in use: no more than 12
		ask(dial())
	}
	if open, _, _ := counts(); open > 12 {
		t.Errorf("%d connections are open", open)
	}
	server.CloseClientConnections()
	wait.For(t, "all connections are closed", func() bool { open, waiting, hosts := counts(); return open+waiting+hosts == 0 })
	for range 8 { // many at once are not too many
		dial()
	}
	wait.For(t, "eight connections are open", func() bool { open, _, _ := counts(); return open == 8 })
	limited.mu.Lock()
	for e := limited.waiting.Front(); e != nil; e = e.Next() {
		e.Value.(*limitedConn).since = time.Now().Add(-2 * patience)
	}
	limited.mu.Unlock()
	if conn := dial(); !ask(conn) {
		t.Error("a new client is locked out")
	}
	if open, waiting, _ := counts(); open != 8 || waiting != 7 {
		t.Errorf("%d connections are open, %d wait", open, waiting)
	}
	server.CloseClientConnections()
	wait.For(t, "all connections are closed", func() bool { open, waiting, hosts := counts(); return open+waiting+hosts == 0 })
}
