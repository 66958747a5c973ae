package tcp_test

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// sight returns the sighting of a board at address.
func sight(t *testing.T, board tcp.Board) transport.Sighting {
	t.Helper()
	cfg := tcp.DefaultConfig()
	cfg.Boards = []tcp.Board{board}
	cfg.Protocols = []string{"any"}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan transport.Sighting, 1)
	ended := make(chan error)
	go func() {
		ended <- tcp.New(cfg).Watch(ctx, func(_ string, all []transport.Sighting) { seen <- all[0] })
	}()
	s := <-seen
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("Watch returned %v, want nil when its context ends", err)
	}
	return s
}

func TestLink(t *testing.T) {
	transporttest.RunLines(t, func(t *testing.T) (transport.Link, io.ReadWriteCloser) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		link, err := sight(t, tcp.Board{Address: ln.Addr().String()}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		far, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Close(); far.Close() })
		return link, far
	})
}

func TestSighting(t *testing.T) {
	s := sight(t, tcp.Board{Address: "127.0.0.1:9", Name: "robot"})
	if s.Address != "127.0.0.1:9" || s.Name != "robot" || !s.Adopted || s.Transport != "tcp" {
		t.Errorf("got %+v", s)
	}
	if s := sight(t, tcp.Board{Address: "127.0.0.1:9", Pending: true}); s.Adopted {
		t.Error("a pending board was adopted")
	}
	for address, local := range map[string]bool{
		"127.0.0.1:9": true, "127.1.2.3:9": true, "[::1]:9": true, "localhost:9": true,
		"192.168.1.20:9": false, "board.local:9": false, "[fe80::1]:9": false,
	} {
		if s := sight(t, tcp.Board{Address: address}); s.Local != local {
			t.Errorf("%s is local: %t", address, s.Local)
		}
	}
}

func TestOpenFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // the port is closed now
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	_, err = sight(t, tcp.Board{Address: ln.Addr().String()}).Open(ctx)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Open returned %v, want connection refused", err)
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct{ address, want string }{
		{"127.0.0.1", "must be HOST:PORT"},
		{":4242", "must be HOST:PORT"},
		{"board:0", "1 to 65535"},
		{"board:http", "1 to 65535"},
		{"board:70000", "1 to 65535"},
		{"board:4242", ""},
		{"[fe80::1]:4242", ""},
	} {
		err := tcp.Config{Boards: []tcp.Board{{Address: test.address}}}.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.address, err, test.want)
		}
	}
	twice := tcp.Config{Boards: []tcp.Board{{Address: "a:1"}, {Address: "a:1"}}}
	if err := twice.Check(); err == nil {
		t.Error("Check accepted the same address twice")
	}
}

// TestSet: boards that were added, changed or removed are reported, and no others.
func TestSet(t *testing.T) {
	a, b, c := tcp.Board{Address: "a:1", Name: "x"}, tcp.Board{Address: "b:1"}, tcp.Board{Address: "c:1", Name: "x"}
	cfg := tcp.DefaultConfig()
	cfg.Boards = []tcp.Board{a, b}
	connector := tcp.New(cfg)
	updates := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- connector.Watch(ctx, func(group string, all []transport.Sighting) {
			for _, s := range all {
				group += " as " + s.Name
			}
			updates <- group
		})
	}()
	want := func(all ...string) {
		t.Helper()
		for _, want := range all {
			if got := <-updates; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	want("tcp a:1 as x", "tcp b:1 as ")
	connector.Set([]tcp.Board{b, c})
	want("tcp a:1", "tcp c:1 as x") // the name is free before it is used again
	b.Name = "y"
	connector.Set([]tcp.Board{b, c})
	want("tcp b:1 as y")
	connector.Add(a)
	want("tcp a:1 as x")
	connector.Set(nil)
	got := []string{<-updates, <-updates, <-updates}
	slices.Sort(got)
	if !slices.Equal(got, []string{"tcp a:1", "tcp b:1", "tcp c:1"}) {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-ended; err != nil || len(updates) > 0 {
		t.Errorf("%v, and %d more updates", err, len(updates))
	}
}
