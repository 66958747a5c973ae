package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

// hubServer is a real server that leaves dial; it can be stopped and started again.
func hubServer(t *testing.T, dir string, client, leaf int) *server.Server {
	t.Helper()
	return startServer(t, &server.Options{
		ServerName: "hub", Port: client, StoreDir: dir, JetStreamDomain: "hub", LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: leaf},
	})
}

// TestLeaf: a leaf's devices are called from the hub, what happens while the hub is
// away is recorded, and arrives there once.
func TestLeaf(t *testing.T) {
	t.Parallel()
	dir, client, leafPort := t.TempDir(), natscluster.Port(t), natscluster.Port(t)
	hub := hubServer(t, dir, client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", client)}, 2, 1
	centre := node(t, "centre", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}
	j := realJournal(t, t.TempDir())
	outpost := nodeWith(t, "site", cfg, j, t.TempDir())
	outpost.serve, centre.serve = echo, echo
	outpost.has("pump", "pump", ferrule.StateOnline)
	centre.has("lamp", "lamp", ferrule.StateOnline)
	eventually(t, 10*time.Second, "both see each other", func() bool { return centre.sees("pump") != nil && outpost.sees("lamp") != nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for id, from := range map[string]*site{"pump": centre, "lamp": outpost} {
		if result, err := from.calls(ctx, id, "look"); err != nil || string(result.Value) != `"look"` {
			t.Errorf("%s: %v, %v", id, result, err)
		}
	}

	hub.Shutdown()
	hub.WaitForShutdown()
	if err := j.Append(ferrule.Entry{Call: "c", Phase: ferrule.Intent, Device: "pump", Tool: "move"}, true); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		outpost.has("pump", "pump", ferrule.StateOffline)
		outpost.has("pump", "pump", ferrule.StateOnline)
	}
	eventually(t, 10*time.Second, "a device of the hub is offline, once its link is known to be broken", func() bool {
		_, err := outpost.calls(ctx, "lamp", "look")
		return err != nil && ferrule.AsError(err).Code == ferrule.Offline
	})
	time.Sleep(time.Second)

	hubServer(t, dir, client, leafPort)
	start := time.Now()
	eventually(t, 20*time.Second, "the journal has arrived", func() bool {
		n := 0
		centre.bus.Journals().Read(t.Context(), ferrule.JournalQuery{Node: "site"}, func(l ferrule.JournalLines) error {
			n += strings.Count(string(l.Lines), "\n")
			return nil
		})
		return n == 1
	})
	t.Logf("the journal arrived after %v", time.Since(start))
	eventually(t, 20*time.Second, "the events have arrived", func() bool {
		h := centre.bus.home.Load()
		if h == nil {
			return false
		}
		info, err := h.events.Info(t.Context())
		return err == nil && info.State.Msgs == 2+10
	})
	eventually(t, 20*time.Second, "pump is there", func() bool {
		_, err := centre.calls(ctx, "pump", "look")
		return err == nil
	})
	time.Sleep(2 * time.Second)
	info, err := centre.bus.home.Load().events.Info(t.Context())
	if err != nil || info.State.Msgs != 2+10 {
		t.Errorf("%d events, %v", info.State.Msgs, err)
	}
}

// TestHubAway: that a hub cannot be written to is no fault of the leaf's own server,
// which goes on.
func TestHubAway(t *testing.T) {
	t.Parallel()
	leafPort := natscluster.Port(t)
	hub := hubServer(t, t.TempDir(), natscluster.Port(t), leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	outpost := node(t, "site", cfg)
	outpost.has("pump", "pump", ferrule.StateOnline)
	eventually(t, 10*time.Second, "it takes part", func() bool { return outpost.record("pump") != nil })
	engine := outpost.bus.engine.Load()
	hub.Shutdown()
	hub.WaitForShutdown()
	outpost.has("pump", "pump", ferrule.StateOffline)
	eventually(t, 20*time.Second, "it says so", func() bool { return !outpost.bus.State().Working })
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if outpost.bus.engine.Load() != engine {
			t.Fatalf("the engine was started anew: %s", outpost.bus.State().Why)
		}
	}
}

// TestEventsOnce: what a hub has kept for long enough it does not get again.
func TestEventsOnce(t *testing.T) {
	t.Parallel()
	leafPort, dir := natscluster.Port(t), t.TempDir()
	hubServer(t, t.TempDir(), natscluster.Port(t), leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	kept := func(s *site) int {
		h := s.bus.home.Load()
		if h == nil {
			return -1
		}
		info, err := h.events.Info(t.Context())
		if err != nil {
			return -1
		}
		return int(info.State.Msgs)
	}
	outpost := nodeWith(t, "site", cfg, noJournal{}, dir)
	for n := range 5 {
		outpost.has(fmt.Sprint("d", n), "pump", ferrule.StateOnline)
	}
	eventually(t, 10*time.Second, "five are there", func() bool { return kept(outpost) == 5 })
	if err := outpost.bus.home.Load().events.Purge(t.Context()); err != nil { // as if they were too old
		t.Fatal(err)
	}
	outpost.stop()
	again := nodeWith(t, "site", cfg, noJournal{}, dir)
	again.has("new", "pump", ferrule.StateOnline)
	eventually(t, 10*time.Second, "the new one is there", func() bool { return kept(again) > 0 })
	time.Sleep(time.Second)
	if n := kept(again); n != 1 {
		t.Errorf("%d events are there", n)
	}
}

// TestTwoLeaves: events are those of the leaf that they happened at, even if the hub
// lets everything through.
func TestTwoLeaves(t *testing.T) {
	t.Parallel()
	client, leafPort := natscluster.Port(t), natscluster.Port(t)
	hubServer(t, t.TempDir(), client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	eventually(t, 10*time.Second, "both work", func() bool { return a.bus.State().Working && b.bus.State().Working })
	const each = 20
	for i := range each {
		a.has(fmt.Sprint("of-a-", i), "pump", ferrule.StateOnline)
		b.has(fmt.Sprint("of-b-", i), "pump", ferrule.StateOnline)
	}
	events := func() uint64 {
		info, err := a.bus.home.Load().events.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs
	}
	eventually(t, 10*time.Second, "all events are at the hub", func() bool { return events() >= 2*each })
	time.Sleep(500 * time.Millisecond)
	if n := events(); n != 2*each {
		t.Errorf("%d events, want %d", n, 2*each)
	}
}

// TestEncrypted: a node joins, and a leaf dials, by TLS, and both know who signed.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	secure, ca := certificate(t)
	client, leafPort := natscluster.Port(t), natscluster.Port(t)
	startServer(t, &server.Options{
		ServerName: "hub", Port: client, StoreDir: t.TempDir(), JetStreamDomain: "hub",
		TLSConfig: secure, TLSTimeout: 5, LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: leafPort, TLSConfig: secure, TLSTimeout: 5},
	})
	cfg := DefaultConfig()
	cfg.Shards, cfg.Replicas, cfg.CA = 1, 1, ca
	cfg.Mode, cfg.Servers = Join, []string{fmt.Sprintf("tls://127.0.0.1:%d", client)}
	centre := node(t, "centre", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("tls://127.0.0.1:%d", leafPort)}
	outpost := node(t, "site", cfg)
	outpost.serve = echo
	outpost.has("pump", "pump", ferrule.StateOnline)
	eventually(t, 10*time.Second, "the device of the site is seen", func() bool { return centre.sees("pump") != nil })
	if _, err := centre.calls(t.Context(), "pump", "look"); err != nil {
		t.Error(err)
	}

	cfg.CA = "" // strangers are not trusted
	stranger := node(t, "stranger", cfg)
	time.Sleep(linkTime + time.Second)
	if state := stranger.bus.State(); state.Working || !strings.Contains(state.Why, "the hub cannot be reached") {
		t.Errorf("without the certificate of who signs: %+v", state)
	}
}

// certificate makes one for this machine that signs itself, and a file with it.
func certificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(nil, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, MinVersion: tls.VersionTLS12}, file
}
