package cluster

import (
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

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// hubServer starts a hub. It can be stopped and started again with the same directory.
func hubServer(t *testing.T, dir string, client, leaf int) *server.Server {
	t.Helper()
	return clustertest.StartServer(t, &server.Options{
		ServerName: "hub", Port: client, StoreDir: dir, JetStreamDomain: "hub", LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: leaf},
	})
}

// TestLeaf checks that nodes at the hub and a leaf call each other's devices, and that what
// happens at the leaf while the hub is down arrives there once.
func TestLeaf(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir, client, leafPort := t.TempDir(), natscluster.Port(t), natscluster.Port(t)
	hub := hubServer(t, dir, client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", client)}, 2, 1
	center := node(t, "center", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}
	j := realJournal(t, t.TempDir())
	leaf := nodeWith(t, "site", cfg, j, t.TempDir())
	leaf.serve, center.serve = echo, echo
	leaf.putDevice("pump", "pump", ferrule.StateOnline)
	center.putDevice("lamp", "lamp", ferrule.StateOnline)
	wait.For(t, "both see each other", func() bool { return center.seen("pump") != nil && leaf.seen("lamp") != nil })
	ctx := t.Context()
	for id, from := range map[string]*testNode{"pump": center, "lamp": leaf} {
		if result, err := from.callTool(ctx, id, "look"); err != nil || string(result.Value) != `"look"` {
			t.Errorf("%s: %v, %v", id, result, err)
		}
	}

	hub.Shutdown()
	hub.WaitForShutdown()
	if err := j.Append(ferrule.Entry{Call: "c", Phase: ferrule.Intent, Device: "pump", Tool: "move"}, true); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		leaf.putDevice("pump", "pump", ferrule.StateOffline)
		leaf.putDevice("pump", "pump", ferrule.StateOnline)
	}
	wait.For(t, "the device at the hub is offline", func() bool {
		_, err := leaf.callTool(ctx, "lamp", "look")
		return err != nil && ferrule.AsError(err).Code == ferrule.Offline
	})
	time.Sleep(time.Second)

	hubServer(t, dir, client, leafPort)
	start := time.Now()
	wait.For(t, "the journal has arrived", func() bool {
		n := 0
		center.cluster.Journals().Read(t.Context(), ferrule.JournalQuery{Node: "site"}, func(l ferrule.JournalLines) error {
			n += strings.Count(string(l.Lines), "\n")
			return nil
		})
		return n == 1
	})
	t.Logf("the journal arrived after %v", time.Since(start))
	wait.For(t, "the events have arrived", func() bool { return center.storedEvents() == 2+10 })
	wait.For(t, "pump answers", func() bool {
		_, err := center.callTool(ctx, "pump", "look")
		return err == nil
	})
	time.Sleep(2 * time.Second)
	if n := center.storedEvents(); n != 2+10 {
		t.Errorf("%d events are stored, want 12", n)
	}
}

// TestHubDown checks that a leaf's own server keeps running while the hub is down.
func TestHubDown(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	leafPort := natscluster.Port(t)
	hub := hubServer(t, t.TempDir(), natscluster.Port(t), leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	leaf := node(t, "site", cfg)
	leaf.putDevice("pump", "pump", ferrule.StateOnline)
	wait.For(t, "it has joined", func() bool { return leaf.lookup("pump") != nil })
	engine := leaf.cluster.engine.Load()
	hub.Shutdown()
	hub.WaitForShutdown()
	leaf.putDevice("pump", "pump", ferrule.StateOffline)
	wait.For(t, "the problem is reported", func() bool { return !leaf.cluster.State().Working })
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if leaf.cluster.engine.Load() != engine {
			t.Fatalf("the engine was restarted: %s", leaf.cluster.State().Reason)
		}
	}
}

// TestEventsOnce checks that the hub does not get events again that it has deleted.
func TestEventsOnce(t *testing.T) {
	t.Parallel()
	leafPort, dir := natscluster.Port(t), t.TempDir()
	hubServer(t, t.TempDir(), natscluster.Port(t), leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	leaf := nodeWith(t, "site", cfg, noJournal{}, dir)
	for n := range 5 {
		leaf.putDevice(fmt.Sprint("d", n), "pump", ferrule.StateOnline)
	}
	wait.For(t, "five events are stored", func() bool { return leaf.storedEvents() == 5 })
	stream, err := leaf.cluster.engine.Load().Shared.Stream(t.Context(), engine.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil { // as if they were too old
		t.Fatal(err)
	}
	leaf.stop()
	again := nodeWith(t, "site", cfg, noJournal{}, dir)
	again.putDevice("new", "pump", ferrule.StateOnline)
	wait.For(t, "the new event is stored", func() bool { return again.storedEvents() > 0 })
	time.Sleep(time.Second)
	if n := again.storedEvents(); n != 1 {
		t.Errorf("%d events are stored, want 1", n)
	}
}

// TestTwoLeaves checks that only the leaf of an event stores it, even if the hub forwards
// all subjects.
func TestTwoLeaves(t *testing.T) {
	t.Parallel()
	client, leafPort := natscluster.Port(t), natscluster.Port(t)
	hubServer(t, t.TempDir(), client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	wait.For(t, "both work", func() bool { return a.cluster.State().Working && b.cluster.State().Working })
	const each = 20
	for i := range each {
		a.putDevice(fmt.Sprint("of-a-", i), "pump", ferrule.StateOnline)
		b.putDevice(fmt.Sprint("of-b-", i), "pump", ferrule.StateOnline)
	}
	wait.For(t, "all events are at the hub", func() bool { return a.storedEvents() >= 2*each })
	time.Sleep(500 * time.Millisecond)
	if n := a.storedEvents(); n != 2*each {
		t.Errorf("%d events, want %d", n, 2*each)
	}
}

// TestTLS checks that a node joins, and a leaf connects, by TLS with a CA file.
func TestTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	secure, ca := certificate(t)
	client, leafPort := natscluster.Port(t), natscluster.Port(t)
	clustertest.StartServer(t, &server.Options{
		ServerName: "hub", Port: client, StoreDir: t.TempDir(), JetStreamDomain: "hub",
		TLSConfig: secure, TLSTimeout: 5, LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: leafPort, TLSConfig: secure, TLSTimeout: 5},
	})
	cfg := DefaultConfig()
	cfg.Shards, cfg.Replicas, cfg.CA = 1, 1, ca
	cfg.Mode, cfg.Servers = Join, []string{fmt.Sprintf("tls://127.0.0.1:%d", client)}
	center := node(t, "center", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("tls://127.0.0.1:%d", leafPort)}
	leaf := node(t, "site", cfg)
	leaf.serve = echo
	leaf.putDevice("pump", "pump", ferrule.StateOnline)
	wait.For(t, "the device of the leaf is seen", func() bool { return center.seen("pump") != nil })
	if _, err := center.callTool(t.Context(), "pump", "look"); err != nil {
		t.Error(err)
	}

	cfg.CA = "" // the certificate is not trusted
	stranger := node(t, "stranger", cfg)
	wait.For(t, "the hub is unreachable without the CA file", func() bool {
		return strings.Contains(stranger.cluster.State().Reason, "the hub is unreachable")
	})
	time.Sleep(time.Second)
	if state := stranger.cluster.State(); state.Working {
		t.Errorf("without the CA file: %+v", state)
	}
}

// certificate returns a self-signed certificate for 127.0.0.1, and a file with it.
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
