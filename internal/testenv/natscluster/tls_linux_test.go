package natscluster_test

import (
	"bufio"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestTLS: the configuration that we ship for operators makes a cluster with TLS, by a
// certificate of `ferrule tls init`. Clients without TLS, or with another CA, are refused.
func TestTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	c := natscluster.Start(t, natscluster.Options{TLS: true})
	for _, s := range c.Servers {
		conn, err := nats.Connect(s.URL(), nats.RootCAs(c.CA))
		if err != nil {
			t.Fatal(err)
		}
		if state, err := conn.TLSConnectionState(); err != nil || !state.HandshakeComplete {
			t.Errorf("%s: %v", s.Name, err)
		}
		conn.Close()
		if conn, err := nats.Connect(s.URL()); err == nil {
			conn.Close()
			t.Errorf("%s: connected without its CA", s.Name)
		}
		for _, address := range []string{s.URL(), s.LeafURL()} {
			if said := talk(t, address); !strings.Contains(said, `"tls_required":true`) || strings.Contains(said, "PONG") {
				t.Errorf("%s: without TLS, %s answers %q", s.Name, address, said)
			}
		}
	}
}

// talk sends a CONNECT without TLS and returns all that the server says.
func talk(t *testing.T, address string) (said string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wait.Ample))
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if said == "" {
			conn.Write([]byte(`CONNECT {"user":"acme-operator","pass":"` + natscluster.Password + `"}` + "\r\nPING\r\n"))
		}
		said += lines.Text() + "\n"
	}
	return said
}
