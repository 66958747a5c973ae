// Package homeassistant runs a real Home Assistant for tests. The script install puts it
// into a directory, which FERRULE_TEST_HOMEASSISTANT names.
package homeassistant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Limit is how long Home Assistant may take to start or to stop.
const Limit = 5 * time.Minute

// Options change what Home Assistant runs.
type Options struct {
	// Bare leaves out the demo integration and kitchen_sink.
	Bare bool
	// YAML is added to configuration.yaml.
	YAML string
}

// Home is a Home Assistant.
type Home struct {
	// URL is its address, and Token the access token of its owner. Both stay the same after
	// a restart.
	URL, Token string
	// Dir is its configuration folder.
	Dir     string
	program string
	cmd     *exec.Cmd
	ended   chan struct{}
	said    *bytes.Buffer
}

// Start starts a Home Assistant on a free port of the loopback interface, with an owner, until
// the test ends. It skips the test if FERRULE_TEST_HOMEASSISTANT is not set.
func Start(t testing.TB, o Options) *Home {
	t.Helper()
	dir := os.Getenv("FERRULE_TEST_HOMEASSISTANT")
	if dir == "" {
		t.Skip("FERRULE_TEST_HOMEASSISTANT is not set: see internal/testenv/homeassistant")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	h := &Home{URL: "http://127.0.0.1:" + port, Dir: t.TempDir(), program: filepath.Join(dir, "bin", "hass")}
	empty := filepath.Join(h.Dir, "frontend")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	lines := []string{
		"homeassistant: {unit_system: metric, time_zone: UTC}",
		"http: {server_host: 127.0.0.1, server_port: " + port + "}",
		"frontend: {development_repo: " + empty + "}", // without its web pages, which are another package
		"recorder: {commit_interval: 0}",
		"history:",
	}
	if !o.Bare {
		lines = append(lines, "demo:", "kitchen_sink:")
	}
	if err := os.WriteFile(filepath.Join(h.Dir, "configuration.yaml"), []byte(strings.Join(append(lines, o.YAML), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Kill)
	h.run(t, "/api/onboarding")
	h.onboard(t)
	h.waitRunning(t)
	return h
}

// Restart starts Home Assistant again after Stop or Kill, and waits until it is running.
func (h *Home) Restart(t testing.TB) {
	t.Helper()
	h.run(t, "/api/onboarding")
	h.waitRunning(t)
}

// Run starts Home Assistant again after Stop or Kill. It returns before it is running.
func (h *Home) Run(t testing.TB) {
	t.Helper()
	h.run(t, "")
}

// Stop ends Home Assistant as its owner would: it saves its state first.
func (h *Home) Stop(t testing.TB) {
	t.Helper()
	h.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-h.ended:
	case <-time.After(Limit):
		t.Fatal("Home Assistant does not end")
	}
}

// Kill ends Home Assistant at once, as a power cut does. It may be called more than once.
func (h *Home) Kill() {
	if h.cmd != nil {
		h.cmd.Process.Kill()
		<-h.ended
	}
}

// run starts the program, and waits until a path answers, unless it is empty.
func (h *Home) run(t testing.TB, path string) {
	t.Helper()
	h.said = &bytes.Buffer{}
	h.cmd = exec.Command(h.program, "-c", h.Dir, "--skip-pip")
	h.cmd.Env = append(os.Environ(), "HOME="+h.Dir)
	h.cmd.Stdout, h.cmd.Stderr = h.said, h.said
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	h.ended = ended
	go func(cmd *exec.Cmd) {
		cmd.Wait()
		close(ended)
	}(h.cmd)
	if path == "" {
		return
	}
	h.until(t, "it answers", func() bool {
		resp, err := http.Get(h.URL + path)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func (h *Home) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit); !holds(); time.Sleep(50 * time.Millisecond) {
		select {
		case <-h.ended:
			t.Fatalf("Home Assistant has ended: %s", h.said)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("Home Assistant: not within %v: %s", Limit, what)
		}
	}
}

func (h *Home) waitRunning(t testing.TB) {
	t.Helper()
	h.until(t, "it is running", func() bool {
		var core struct{ State string }
		return h.ask(http.MethodGet, "/api/core/state", nil, &core) == nil && core.State == "RUNNING"
	})
}

// onboard makes the owner, and logs in.
func (h *Home) onboard(t testing.TB) {
	t.Helper()
	client := h.URL + "/"
	var made struct {
		Code string `json:"auth_code"`
	}
	if err := h.ask(http.MethodPost, "/api/onboarding/users", map[string]string{
		"name": "Owner", "username": "owner", "password": "owner", "client_id": client, "language": "en",
	}, &made); err != nil {
		t.Fatal(err)
	}
	resp, err := http.PostForm(h.URL+"/auth/token", url.Values{"grant_type": {"authorization_code"}, "code": {made.Code}, "client_id": {client}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Token == "" {
		t.Fatalf("no token: %v", err)
	}
	h.Token = got.Token
}

// Ask sends a request to the REST API, and decodes the answer into out unless that is nil.
func (h *Home) Ask(t testing.TB, method, path string, in, out any) {
	t.Helper()
	if err := h.ask(method, path, in, out); err != nil {
		t.Fatal(err)
	}
}

func (h *Home) ask(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, h.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if h.Token != "" {
		req.Header.Set("Authorization", "Bearer "+h.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, data)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// State returns the state of an entity and its attributes.
func (h *Home) State(t testing.TB, entity string) (state string, attributes map[string]any) {
	t.Helper()
	var got struct {
		State      string
		Attributes map[string]any
	}
	h.Ask(t, http.MethodGet, "/api/states/"+entity, nil, &got)
	return got.State, got.Attributes
}

// Configure adds an integration, as its owner does on the page for that: one answer for each
// form. It fails the test if Home Assistant wants more, or finds a mistake.
func (h *Home) Configure(t testing.TB, integration string, answers ...map[string]any) {
	t.Helper()
	var step struct {
		Flow   string `json:"flow_id"`
		Type   string
		Errors map[string]string
		Reason string
	}
	h.Ask(t, http.MethodPost, "/api/config/config_entries/flow", map[string]any{"handler": integration, "show_advanced_options": true}, &step)
	for _, answer := range answers {
		h.Ask(t, http.MethodPost, "/api/config/config_entries/flow/"+step.Flow, answer, &step)
	}
	if step.Type != "create_entry" {
		t.Fatalf("Home Assistant did not add %s: %+v", integration, step)
	}
}

// Call calls a service.
func (h *Home) Call(t testing.TB, domain, service string, data map[string]any) {
	t.Helper()
	h.Ask(t, http.MethodPost, "/api/services/"+domain+"/"+service, data, nil)
}

// Find returns the state of an entity and its attributes. It reports false if there is none.
func (h *Home) Find(entity string) (state string, attributes map[string]any, ok bool) {
	var got struct {
		State      string
		Attributes map[string]any
	}
	err := h.ask(http.MethodGet, "/api/states/"+entity, nil, &got)
	return got.State, got.Attributes, err == nil
}
