package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// proxyHost is the name in the recipes.
const proxyHost = "ferrule.example.com"

// proxyPage returns the blocks of the page about proxies that are in a language.
func proxyPage(t *testing.T, language string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/reverse-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		t.Fatalf("the page has no %s", language)
	}
	return blocks
}

// selfSigned writes a certificate for proxyHost and its key, and returns it as the only
// one to trust.
func selfSigned(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{proxyHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return roots
}

// clientAt returns a client that finds every host at an address.
func clientAt(address, token string, roots *x509.CertPool) *http.Client {
	return &http.Client{Transport: bearer{token, &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots},
	}}}
}

// startProxy runs a program until the test ends. If it is missing, the test is skipped,
// except in CI.
func startProxy(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
}

// nginx runs the recipe for nginx in front of a gateway.
func nginx(t *testing.T, gateway string) (address string, roots *x509.CertPool) {
	dir := t.TempDir()
	address = freeAddress(t)
	cert, key := filepath.Join(dir, "fullchain.pem"), filepath.Join(dir, "privkey.pem")
	roots = selfSigned(t, cert, key)
	server := strings.NewReplacer("listen 443 ssl", "listen "+address+" ssl", "/etc/ssl/ferrule/fullchain.pem", cert, "/etc/ssl/ferrule/privkey.pem", key, "127.0.0.1:3377", gateway).
		Replace(proxyPage(t, "nginx")[0])
	var temp strings.Builder
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s;\n", name, filepath.Join(dir, name))
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // else its workers cannot use the directory of the test
	}
	text := fmt.Sprintf("%sdaemon off;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", user, dir, &temp, server)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startProxy(t, nil, "nginx", "-p", dir, "-c", file, "-e", "stderr")
	return address, roots
}

// caddy runs the recipe for Caddy in front of a gateway, with a certificate authority of
// its own.
func caddy(t *testing.T, gateway string) (address string, roots *x509.CertPool) {
	dir := t.TempDir()
	address = freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	text := fmt.Sprintf("{\nadmin off\nauto_https disable_redirects\nlocal_certs\nskip_install_trust\ndefault_bind 127.0.0.1\nhttps_port %s\n}\n", port) +
		strings.ReplaceAll(proxyPage(t, "caddyfile")[0], "127.0.0.1:3377", gateway)
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startProxy(t, []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, "caddy", "run", "--config", file)
	roots = x509.NewCertPool()
	wait.For(t, "Caddy has a certificate authority", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "caddy/pki/authorities/local/root.crt"))
		return err == nil && roots.AppendCertsFromPEM(data)
	})
	return address, roots
}

// TestReverseProxies runs the recipes of the page about proxies: an agent on another
// machine calls a tool, and receives a notification while its stream is open.
func TestReverseProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("this runs nginx and Caddy")
	}
	const token = "a-token-of-sixteen"
	written, err := config.Parse([]byte(proxyPage(t, "yaml")[1]))
	if err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]func(t *testing.T, gateway string) (string, *x509.CertPool){"nginx": nginx, "caddy": caddy} {
		t.Run(name, func(t *testing.T) {
			boards := startSim(t, sim.Config{Count: 1 + len(mcpVersions)})
			g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, needsToken(config.Token{Name: "claude", Token: token}),
				func(c *config.Config) { c.Agents.Hosts = written.Agents.Hosts })
			g.online("robot")
			address, roots := start(t, g.Addr())
			client := clientAt(address, token, roots)
			wait.For(t, "the proxy answers", func() bool {
				resp, err := client.Get("https://" + proxyHost + "/healthz")
				if err != nil {
					return false
				}
				resp.Body.Close()
				return resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusForbidden
			})
			for i, version := range mcpVersions {
				agent, err := newPlainAgent(t.Context(), client, "https://"+proxyHost+"/mcp", version)
				if err != nil {
					t.Fatalf("%s: %v", version, err)
				}
				if _, err := agent.call(t.Context(), "robot__gpio_write", `{"pin":2,"value":true}`); err != nil || boards.Boards[0].Level(sim.PinLED) == 0 {
					t.Fatalf("%s: %v", version, err)
				}
				stream, err := agent.listen(t.Context())
				if err != nil {
					t.Fatalf("%s: %v", version, err)
				}
				request := control.DeviceRequest{Transport: "tcp", Address: boards.Addrs()[1+i], Name: fmt.Sprintf("arm%d", i)}
				if err := g.Requests.Add(t.Context(), []control.DeviceRequest{request}); err != nil {
					t.Fatal(err)
				}
				timeout := time.AfterFunc(wait.Ample, func() { stream.Body.Close() })
				var seen strings.Builder
				for b := make([]byte, 4096); !strings.Contains(seen.String(), "tools/list_changed"); {
					n, err := stream.Body.Read(b)
					if seen.Write(b[:n]); err != nil {
						t.Fatalf("%s: no notification came through: %v, %s", version, err, &seen)
					}
				}
				timeout.Stop()
				stream.Body.Close()
			}
			if _, err := newPlainAgent(t.Context(), clientAt(address, "", roots), "https://"+proxyHost+"/mcp", legacy); err != errStatus(http.StatusUnauthorized) {
				t.Errorf("without a token: %v", err)
			}
			// A name that nobody added stays refused.
			g.Agents.SetHosts(nil)
			if _, err := newPlainAgent(t.Context(), client, "https://"+proxyHost+"/mcp", legacy); err != errStatus(http.StatusForbidden) {
				t.Errorf("under an unknown name: %v", err)
			}
		})
	}
}

// TestTLS: the gateway serves TLS, and reads a renewed certificate by itself.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "fullchain.pem"), filepath.Join(dir, "privkey.pem")
	roots := selfSigned(t, cert, key)
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, func(c *config.Config) {
		c.TLS = config.TLS{Cert: cert, Key: key}
		c.Agents.Hosts = []string{proxyHost}
	}, needsToken(config.Token{Name: "claude", Token: "a-token-of-sixteen"}))
	g.online("robot")
	if want := "https://" + g.Addr(); g.URL() != want {
		t.Errorf("got %s, want %s", g.URL(), want)
	}
	call := func(roots *x509.CertPool) error {
		agent, err := newPlainAgent(t.Context(), clientAt(g.Addr(), "a-token-of-sixteen", roots), "https://"+proxyHost+"/mcp", legacy)
		if err == nil {
			_, err = agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`)
		}
		return err
	}
	if err := call(roots); err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", g.Addr(), &tls.Config{RootCAs: roots, ServerName: proxyHost, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.ConnectionState(); got.NegotiatedProtocol != "http/1.1" || got.Version < tls.VersionTLS12 {
		t.Errorf("got %q with %s", got.NegotiatedProtocol, tls.VersionName(got.Version))
	}
	conn.Close()
	commandLine{t}.want(exitOther, "https://"+g.Addr()+"/healthz answers; agents are served at /mcp", "doctor", "--all", "--data", g.data, "--config", cert) // which is not a configuration
	renewed := selfSigned(t, cert, key)
	wait.For(t, "the renewed certificate is used", func() bool { return call(renewed) == nil })
	if resp, err := http.Get("http://" + g.Addr() + "/healthz"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("HTTP without TLS is served")
		}
	}
}
