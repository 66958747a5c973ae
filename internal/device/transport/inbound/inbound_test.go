package inbound_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

var home = netip.MustParseAddr("192.168.1.20")

// watched is a registry and its latest report of each group.
type watched struct {
	*inbound.Registry
	stop func()

	mu     sync.Mutex
	groups map[string][]transport.Sighting
}

// watch runs a registry. It must be called inside a synctest bubble.
func watch(t *testing.T, change func(*inbound.Config)) *watched {
	t.Helper()
	cfg := inbound.DefaultConfig()
	cfg.Protocols = []string{"any"}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	w := &watched{Registry: inbound.New("test", cfg, slog.New(slog.DiscardHandler)), groups: make(map[string][]transport.Sighting)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := w.Watch(ctx, func(group string, all []transport.Sighting) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.groups[group] = all
		})
		if err != nil {
			t.Errorf("Watch returned %v", err)
		}
	})
	w.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(w.stop)
	synctest.Wait()
	return w
}

// sighted returns the sightings of an address.
func (w *watched) sighted(address string) []transport.Sighting {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.groups["test "+address]
}

// peer is a connection that records why it was dropped.
type peer struct {
	transport.Link
	conn *inbound.Conn
	why  atomic.Pointer[error]
}

func (p *peer) dropped() error {
	if why := p.why.Load(); why != nil {
		return *why
	}
	return nil
}

func (w *watched) dial(t *testing.T, from netip.Addr, g inbound.Peer) (*peer, error) {
	t.Helper()
	conn, err := w.Accept(from)
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn}
	err = conn.Identify(g)
	if err == nil {
		err = conn.Register(p, func(why error) {
			p.why.Store(&why)
			conn.Release()
		})
	}
	if err != nil {
		conn.Release()
	}
	return p, err
}

func (w *watched) must(t *testing.T, from netip.Addr, g inbound.Peer) *peer {
	t.Helper()
	p, err := w.dial(t, from, g)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRegister: a peer is sighted, opened once, and gone after Release.
func TestRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		p := w.must(t, home, inbound.Peer{Address: "a", Name: "toy", Adopted: true})
		all := w.sighted("a")
		if len(all) != 1 {
			t.Fatalf("%d sightings", len(all))
		}
		s := all[0]
		if s.Address != "a" || s.Name != "toy" || !s.Adopted || !s.Inbound || s.Local || s.Transport != "test" || s.Protocols[0] != "any" {
			t.Errorf("got %+v", s)
		}
		if link, err := s.Open(t.Context()); err != nil || link != transport.Link(p) {
			t.Errorf("Open returned %v, %v", link, err)
		}
		if _, err := s.Open(t.Context()); err == nil {
			t.Error("opened twice")
		}
		time.Sleep(time.Hour)
		if p.dropped() != nil {
			t.Errorf("dropped after it was opened: %v", p.dropped())
		}
		p.conn.Release()
		p.conn.Release()
		if all := w.sighted("a"); len(all) != 0 {
			t.Errorf("sighted after Release: %+v", all)
		}
	})
}

// TestOpenTimeout: a peer that is not opened in time is dropped.
func TestOpenTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		p := w.must(t, home, inbound.Peer{Address: "a"})
		s := w.sighted("a")[0]
		time.Sleep(29 * time.Second)
		if synctest.Wait(); p.dropped() != nil {
			t.Fatalf("dropped early: %v", p.dropped())
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); p.dropped() == nil || len(w.sighted("a")) != 0 {
			t.Error("not dropped after the timeout")
		}
		if _, err := s.Open(t.Context()); err == nil {
			t.Error("a dropped peer could be opened")
		}
	})
}

// TestBeforeWatch: a peer that connects before Watch is reported when it begins.
func TestBeforeWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{Registry: inbound.New("test", inbound.DefaultConfig(), slog.New(slog.DiscardHandler))}
		w.must(t, home, inbound.Peer{Address: "a"})
		ctx, cancel := context.WithCancel(t.Context())
		w.Watch(ctx, func(group string, all []transport.Sighting) {
			if group != "test a" || len(all) != 1 {
				t.Errorf("%s: %+v", group, all)
			}
			cancel()
		})
	})
}

// TestReplaced: the newest connection of an address replaces the previous one, with a
// new instance.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		first := w.must(t, home, inbound.Peer{Address: "a", Adopted: true})
		was := w.sighted("a")[0]
		second := w.must(t, home, inbound.Peer{Address: "a", Adopted: true})
		is := w.sighted("a")
		if first.dropped() == nil || second.dropped() != nil {
			t.Errorf("the first was dropped: %v; the second: %v", first.dropped(), second.dropped())
		}
		if len(is) != 1 || is[0].Instance <= was.Instance {
			t.Errorf("instance %d came after %d", is[0].Instance, was.Instance)
		}
		if _, err := was.Open(t.Context()); err == nil {
			t.Error("the replaced connection can be opened")
		}
		if link, err := is[0].Open(t.Context()); err != nil || link != transport.Link(second) {
			t.Errorf("Open returned %v, %v", link, err)
		}
	})
}

// TestStranger: a stranger who knows an address can neither disconnect nor lock out
// the owner's device.
func TestStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		far := netip.MustParseAddr("203.0.113.9")
		stranger := w.must(t, far, inbound.Peer{Address: "a"})
		for range 20 {
			w.dial(t, far, inbound.Peer{Address: "a"})
		}
		own := w.must(t, home, inbound.Peer{Address: "a", Adopted: true})
		if stranger.dropped() == nil {
			t.Error("the stranger was not replaced")
		}
		if _, err := w.dial(t, far, inbound.Peer{Address: "a"}); !errors.Is(err, inbound.ErrAddressTaken) {
			t.Errorf("a stranger got %v", err)
		}
		if own.dropped() != nil {
			t.Errorf("the owner's device was dropped: %v", own.dropped())
		}
	})
}

func TestLimits(t *testing.T) {
	far := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}) }
	for name, test := range map[string]struct {
		change func(*inbound.Config)
		dial   func(i int) (netip.Addr, inbound.Peer)
		want   int // accepted connections
		err    error
	}{
		"in total": {
			func(c *inbound.Config) { c.Max = 5 },
			func(i int) (netip.Addr, inbound.Peer) { return far(i), inbound.Peer{Address: fmt.Sprint(i)} },
			5, inbound.ErrFull,
		},
		"from one host": {
			func(c *inbound.Config) { c.PerHost = 7 },
			func(i int) (netip.Addr, inbound.Peer) { return home, inbound.Peer{Address: fmt.Sprint(i)} },
			7, inbound.ErrHostFull,
		},
		"rate of one host": {
			func(c *inbound.Config) { c.Host.Burst = 9 },
			func(i int) (netip.Addr, inbound.Peer) { return home, inbound.Peer{Address: fmt.Sprint(i)} },
			9, inbound.ErrTooOften,
		},
		"from one IPv6 network": {
			func(c *inbound.Config) { c.PerHost = 7 },
			func(i int) (netip.Addr, inbound.Peer) {
				return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1)), inbound.Peer{Address: fmt.Sprint(i)}
			},
			7, inbound.ErrHostFull,
		},
		"rate of one address": {
			nil,
			func(i int) (netip.Addr, inbound.Peer) { return far(i), inbound.Peer{Address: "a", Adopted: true} },
			10, inbound.ErrTooOften,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, test.change)
				var in []*peer
				for i := range 20 {
					from, as := test.dial(i)
					p, err := w.dial(t, from, as)
					if err == nil {
						in = append(in, p)
					} else if !errors.Is(err, test.err) {
						t.Errorf("refused with %v, want %v", err, test.err)
					}
				}
				if len(in) != test.want {
					t.Errorf("%d were accepted, want %d", len(in), test.want)
				}
				for _, p := range in {
					p.conn.Release()
				}
				time.Sleep(time.Minute)
				from, as := test.dial(21)
				if _, err := w.dial(t, from, as); err != nil {
					t.Errorf("a minute after all disconnected: %v", err)
				}
			})
		})
	}
}

// TestClose: after Watch, connections are refused and waiting peers dropped. Opened
// peers stay.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		waits := w.must(t, home, inbound.Peer{Address: "a"})
		opened := w.must(t, home, inbound.Peer{Address: "b"})
		if _, err := w.sighted("b")[0].Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.stop()
		if !errors.Is(waits.dropped(), inbound.ErrClosed) || opened.dropped() != nil {
			t.Errorf("the waiting peer got %v, the opened one %v", waits.dropped(), opened.dropped())
		}
		if _, err := w.Accept(home); !errors.Is(err, inbound.ErrClosed) {
			t.Errorf("after Watch: %v", err)
		}
	})
}

func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		p := w.must(t, home, inbound.Peer{Address: "a"})
		why := errors.New("its credential was revoked")
		w.Drop("b", why)
		if w.Drop("a", why); p.dropped() != why {
			t.Errorf("got %v", p.dropped())
		}
	})
}

// TestDropBeforeRegister: a peer whose credential was checked before a revocation is
// not registered. It may connect again.
func TestDropBeforeRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		p, err := w.Accept(home)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Identify(inbound.Peer{Address: "a", Adopted: true}); err != nil {
			t.Fatal(err)
		}
		w.Drop("a", errors.New("its credential was revoked"))
		if err := p.Register(nil, nil); err == nil {
			t.Error("registered")
		}
		p.Release()
		w.must(t, home, inbound.Peer{Address: "a"})
	})
}

// TestLogRefusal: a flood of refusals gives few log lines, and all are counted.
func TestLogRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := inbound.New("test", inbound.DefaultConfig(), slog.New(slog.NewTextHandler(&out, nil)))
		for range 1000 {
			l.LogRefusal(home, "", inbound.ErrTooOften)
		}
		time.Sleep(time.Minute)
		l.LogRefusal(home, "a", inbound.ErrAddressTaken)
		if n := strings.Count(out.String(), "\n"); n != 11 {
			t.Errorf("%d lines", n)
		}
		if !strings.Contains(out.String(), "990 others") {
			t.Errorf("the others are not counted: %s", out.String())
		}
	})
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*inbound.Config){
		"max":          func(c *inbound.Config) { c.Max = 0 },
		"per host":     func(c *inbound.Config) { c.PerHost = 0 },
		"open timeout": func(c *inbound.Config) { c.OpenTimeout = 0 },
		"host":         func(c *inbound.Config) { c.Host.Burst = 0 },
		"address":      func(c *inbound.Config) { c.Address.Every = 0 },
	} {
		cfg := inbound.DefaultConfig()
		change(&cfg)
		if err := cfg.Check(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
