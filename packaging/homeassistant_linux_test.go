package packaging_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const app = "homeassistant/ferrule/"

// appKeys are the keys of an app that this one may use, as Home Assistant's documentation lists them.
var appKeys = []string{
	"name", "version", "slug", "description", "url", "arch", "init", "startup", "boot", "ingress", "ingress_port", "panel_icon", "panel_title",
	"panel_admin", "homeassistant_api", "hassio_api", "uart", "services", "map", "ports", "options", "schema",
}

// TestHomeAssistantApp checks the configuration of the app: its keys, that each option has a
// schema and a text, and that nothing asks for more rights than it needs.
func TestHomeAssistantApp(t *testing.T) {
	var about struct {
		Ingress     bool
		IngressPort int  `yaml:"ingress_port"`
		PanelAdmin  bool `yaml:"panel_admin"`
		Slug        string
		Arch        []string
		Options     map[string]any
		Schema      map[string]string
		Ports       map[string]any
	}
	var all map[string]any
	text := []byte(read(t, app+"config.yaml"))
	if err := yaml.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for key := range all {
		if !slices.Contains(appKeys, key) {
			t.Errorf("config.yaml has the key %s", key)
		}
	}
	if !about.Ingress || !about.PanelAdmin || about.Slug != "ferrule" || !slices.Equal(about.Arch, []string{"aarch64", "amd64"}) {
		t.Errorf("got %+v", about)
	}
	if !strings.Contains(read(t, app+"nginx.conf"), fmt.Sprintf("listen %d;", about.IngressPort)) {
		t.Error("nginx does not listen on ingress_port")
	}
	for port, open := range about.Ports {
		if open != nil {
			t.Errorf("port %s is open unless the owner closes it", port)
		}
	}
	var texts struct {
		Configuration map[string]struct{ Name, Description string }
	}
	if err := yaml.Unmarshal([]byte(read(t, app+"translations/en.yaml")), &texts); err != nil {
		t.Fatal(err)
	}
	for option := range about.Options {
		if about.Schema[option] == "" || texts.Configuration[option].Description == "" {
			t.Errorf("option %s has no schema or no text", option)
		}
	}
}

// TestHomeAssistantRun runs the start script with stand-ins for the Supervisor and the gateway:
// the configuration that it writes is valid, and is not written twice.
func TestHomeAssistantRun(t *testing.T) {
	for _, program := range []string{"jq", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	script := strings.NewReplacer("/data/", dir+"/data/", " /config/overlays", " "+dir+"/overlays").Replace(read(t, app+"run"))
	for name, text := range map[string]string{
		"run": script, "nginx": "#!/bin/sh\n", "ferrule": "#!/bin/sh\necho \"$@\" http://127.0.0.1:3377/login/link/SECRET\n",
		"curl": "#!/bin/sh\ncase \"$*\" in *services/mqtt*) echo '{\"data\":{\"host\":\"core-mosquitto\",\"port\":1883,\"ssl\":false,\"username\":\"addons\",\"password\":\"p: #w\"}}';; *info*) echo '{\"data\":{\"ingress_entry\":\"/api/hassio_ingress/TOKEN\"}}';; esac\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "options.json"), []byte(`{"network":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ferrule.yaml")
	run := func() string {
		t.Helper()
		cmd := exec.Command("sh", filepath.Join(dir, "run"))
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SUPERVISOR_TOKEN=secret", "FERRULE_CONFIG="+file)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if said := run(); !strings.Contains(said, "up --listen 0.0.0.0:3377") || !strings.Contains(said, "/api/hassio_ingress/TOKEN/login/link/SECRET") || strings.Contains(said, "secret") {
		t.Errorf("it says %s", said)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Brokers()[0]; b.URL != "mqtt://core-mosquitto:1883" || b.User != "addons" || !b.Publish || c.Homes()[0].URL != "http://supervisor/core" {
		t.Errorf("the broker is %+v, the home is %+v", b, c.Homes()[0])
	}
	if password, err := os.ReadFile(filepath.Join(dir, "data", "mqtt.password")); err != nil || string(password) != "p: #w\n" {
		t.Errorf("the password is %q, %v", password, err)
	}
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run()
	if text := read(t, file); text != "listen: 127.0.0.1:1\n" {
		t.Errorf("the owner's file is now %s", text)
	}
}

// TestHomeAssistantIngress runs nginx with the app's configuration in front of a server: links,
// redirects and cookies get the path of ingress, and only the Supervisor may connect.
func TestHomeAssistantIngress(t *testing.T) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip(err)
	}
	const page = `<a href="/devices">x</a><form action="/login"><i hx-get="/a" hx-post="/b" data-live="/c" href="https://example.com/"></i>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set("X-Origin", r.Header.Get("Origin"))
		switch r.URL.Path {
		case "/old":
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b", Path: "/"})
			w.Header().Set("HX-Redirect", "/devices")
			http.Redirect(w, r, "/devices", http.StatusSeeOther)
		default:
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, page)
		}
	}))
	defer server.Close()
	at := startNginx(t, program, server.Listener.Addr().String(), "127.0.0.1")
	const prefix = "/api/hassio_ingress/T0ken_-"
	ask := func(path, ingress, origin string) (*http.Response, string) {
		t.Helper()
		req, _ := http.NewRequest(http.MethodGet, "http://"+at+path, nil)
		for key, value := range map[string]string{"X-Ingress-Path": ingress, "X-Forwarded-Proto": "http", "X-Forwarded-Host": "home.local:8123", "Origin": origin} {
			if value != "" {
				req.Header.Set(key, value)
			}
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp, string(body)
	}
	resp, body := ask("/", prefix, "http://home.local:8123")
	if want := regexp.MustCompile(`"(/[a-z])`).ReplaceAllString(page, `"`+prefix+"$1"); body != want {
		t.Errorf("the page is\n%s, want\n%s", body, want)
	}
	if h := resp.Header; h.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'self'; base-uri 'none'" || h.Get("X-Frame-Options") != "SAMEORIGIN" || h.Get("X-Origin") != "http://127.0.0.1:3377" {
		t.Errorf("the header is %v", h)
	}
	if resp, _ := ask("/", prefix, "http://evil.example"); resp.Header.Get("X-Origin") != "http://evil.example" {
		t.Errorf("a foreign origin becomes %s", resp.Header.Get("X-Origin"))
	}
	resp, _ = ask("/old", prefix, "")
	if h := resp.Header; !strings.HasSuffix(h.Get("Location"), prefix+"/devices") || h.Get("HX-Redirect") != prefix+"/devices" || !strings.Contains(h.Get("Set-Cookie"), "Path="+prefix+"/") {
		t.Errorf("the header is %v", h)
	}
	if _, body := ask("/", `/x"><script>`, ""); body != page {
		t.Errorf("a path of others is in the page: %s", body)
	}
	if resp, _ := http.Get("http://" + startNginx(t, program, server.Listener.Addr().String(), "172.30.32.2")); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another program gets %s", resp.Status)
	}
}

// startNginx runs nginx until the test ends, and returns its address.
func startNginx(t *testing.T, program, upstream, allowed string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	ln.Close()
	dir := t.TempDir()
	text := strings.NewReplacer("proxy_pass http://127.0.0.1:3377;", "proxy_pass http://"+upstream+";", "listen 8099;", "listen "+at+";",
		"172.30.32.2", allowed, "/run/nginx.pid", dir+"/pid").Replace(read(t, app+"nginx.conf"))
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-e", "stderr", "-c", file, "-g", "daemon off;")
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // it ends its workers
		cmd.Wait()
	})
	wait.For(t, "nginx listens", func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return at
}
