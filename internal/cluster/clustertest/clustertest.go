// Package clustertest has what the tests of the cluster packages share: a NATS server in
// the test's process, and a check that the reference page is true.
package clustertest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// StartServer starts a NATS server with JetStream in this process. It stops with the test.
func StartServer(t testing.TB, options *server.Options) *server.Server {
	t.Helper()
	options.Host, options.JetStream, options.NoSigs = "127.0.0.1", true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(wait.Ample) {
		t.Fatal("the NATS server is not ready")
	}
	return s
}

// OneServer starts a server, and returns the config of nodes that join it. The test runs
// in parallel with others: such tests mostly wait.
func OneServer(t *testing.T) engine.Config {
	t.Helper()
	t.Parallel()
	s := StartServer(t, &server.Options{Port: server.RANDOM_PORT, StoreDir: t.TempDir(), JetStreamDomain: "hub"})
	cfg := engine.DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = engine.Join, []string{s.ClientURL()}, 2, 1
	cfg.Secret = SecretFile(t)
	return cfg
}

// Connect connects to servers, until the test ends.
func Connect(t testing.TB, urls string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(urls, nats.Timeout(wait.Ample))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(wait.Ample))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// SecretFile writes the secret of a tenant and returns its path.
func SecretFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.secret")
	if err := os.WriteFile(path, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
