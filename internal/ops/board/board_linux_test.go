package board

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestCheck: beyond loopback, a token or a decision is needed.
func TestCheck(t *testing.T) {
	for _, c := range []Config{
		{Listen: DefaultListen}, {Listen: "localhost:0"}, {Listen: "[::1]:80", TokenFile: "x"},
		{Listen: ":8642", TokenFile: "x"}, {Listen: "0.0.0.0:8642", Anyone: true},
		{Listen: DefaultListen, Hosts: []string{"pi.fritz.box", "pi-2"}},
	} {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for listen, want := range map[string]string{
		"8642": "must be HOST:PORT", ":8642": "--token-file FILE", "0.0.0.0:1": "--token-file FILE", "pi.local:1": "--token-file FILE", "192.168.1.4:1": "--anyone",
	} {
		if err := (Config{Listen: listen}).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", listen, err, want)
		}
	}
	for _, c := range []Config{{Anyone: true, TokenFile: "x"}, {Lines: []string{"["}}, {Poll: time.Millisecond}, {Poll: -time.Second}, {Hosts: []string{"pi.fritz.box", "pi:80"}}, {Hosts: []string{""}}} {
		if c.Listen = DefaultListen; c.Check() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}

// TestAddr: localhost is what the computer takes it for, and may not be a loopback address.
func TestAddr(t *testing.T) {
	local, beyond := &net.TCPAddr{IP: net.IPv6loopback, Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 168, 1, 4), Port: 1}
	c := Config{Listen: "localhost:1"}
	if err := c.checkAddr(local); err != nil {
		t.Error(err)
	}
	if err := c.checkAddr(beyond); err == nil || !strings.Contains(err.Error(), "localhost:1, which is 192.168.1.4:1, can be reached") {
		t.Errorf("got %v", err)
	}
	for _, c := range []Config{{Anyone: true}, {TokenFile: "x"}} {
		if err := c.checkAddr(beyond); err != nil {
			t.Error(err)
		}
	}
	// A caller that did not check the configuration does not expose the board either.
	newRoot(t)
	c = Config{Name: "pi", Listen: "0.0.0.0:0", Log: slog.New(slog.DiscardHandler)}
	if err := Run(t.Context(), c, func(fmt.Stringer) error { return errors.New("the board is ready") }); err == nil || !strings.Contains(err.Error(), "can be reached") {
		t.Errorf("got %v", err)
	}
}

// TestToken: a token file is made once, and one that others can read or that can be guessed is
// not used.
func TestToken(t *testing.T) {
	c := Config{TokenFile: filepath.Join(t.TempDir(), "token")}
	first, created, err := c.token()
	if err != nil || !created || len(first) < minToken {
		t.Fatalf("%q, %v, %v", first, created, err)
	}
	if info, err := os.Stat(c.TokenFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if second, created, err := c.token(); err != nil || created || second != first {
		t.Errorf("%q, %v, %v", second, created, err)
	}
	if err := os.Chmod(c.TokenFile, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.token(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a token that everyone can read: %v", err)
	}
	for mode, ok := range map[os.FileMode]bool{0o640: true, 0o660: false, 0o620: false} {
		if err := os.Chmod(c.TokenFile, mode); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.token(); (err == nil) != ok {
			t.Errorf("a token with mode %v: %v", mode, err)
		}
	}
	for _, text := range []string{"", "short", "two words that are long enough"} {
		os.Remove(c.TokenFile)
		if err := os.WriteFile(c.TokenFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.token(); err == nil {
			t.Errorf("%q is a token", text)
		}
	}
}

// newRoot returns an empty folder that stands for / until the test ends.
func newRoot(t *testing.T) string {
	t.Cleanup(func() { kernelfs.Root = "/" })
	kernelfs.Root = t.TempDir()
	return kernelfs.Root
}

// addLED adds an LED to a made-up sysfs.
func addLED(t *testing.T, root, name string) {
	t.Helper()
	dir := filepath.Join(root, "sys/class/leds", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"brightness": "0", "max_brightness": "255"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRun: the board serves MCP to callers with its token, and hardware that is plugged in
// appears.
func TestRun(t *testing.T) {
	root := newRoot(t)
	addLED(t, root, "one")
	c := Config{Name: "pi", Version: "1", Listen: "127.0.0.1:0", TokenFile: filepath.Join(root, "token"), Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan Served, 1), make(chan error, 1)
	go func() { ended <- Run(ctx, c, func(v fmt.Stringer) error { ready <- v.(Served); return nil }) }()
	var served Served
	select {
	case served = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if text := served.String(); served.Tools != 2 || !strings.Contains(text, "Programs that know the token in "+c.TokenFile+" can use it. A new one was made.") {
		t.Errorf("%+v: %s", served, text)
	}
	token, _, err := c.token()
	if err != nil {
		t.Fatal(err)
	}
	if status, body := post(t, served.URL, "", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", status, body)
	}
	tools := func() string {
		status, body := post(t, served.URL, token, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		return body
	}
	if list := tools(); !strings.Contains(list, "led_one_set") || strings.Contains(list, "led_two_set") {
		t.Errorf("tools: %s", list)
	}
	addLED(t, root, "two")
	wait.For(t, "the new LED has tools", func() bool { return strings.Contains(tools(), "led_two_set") })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestHosts: on a loopback address, callers may use the name of the computer and those that were
// added, and nothing that a web page can have.
func TestHosts(t *testing.T) {
	addLED(t, newRoot(t), "one")
	own := computerName()
	if own == "" {
		t.Skip("this computer has no name")
	}
	c := Config{Name: "board", Version: "1", Listen: "127.0.0.1:0", Hosts: []string{"pi.fritz.box"}, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan Served, 1), make(chan error, 1)
	go func() { ended <- Run(ctx, c, func(v fmt.Stringer) error { ready <- v.(Served); return nil }) }()
	var served Served
	select {
	case served = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	for host, ok := range map[string]bool{
		own: true, strings.ToUpper(own) + ":8642": true, own + ".local": true, "pi.fritz.box": true, "localhost": true,
		own + ".example.com": false, "x" + own: false, "x" + own + ".local": false, "fritz.box": false,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, served.URL, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if (response.StatusCode != http.StatusForbidden) != ok {
			t.Errorf("%s: %s", host, response.Status)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func post(t *testing.T, url, token, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"} {
		request.Header.Set(key, value)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// TestList: the list is that of the board, and says so if there is nothing.
func TestList(t *testing.T) {
	root, c := newRoot(t), Config{ListOnly: true}
	var tools Tools
	list := func() error {
		return Run(t.Context(), c, func(v fmt.Stringer) error { tools = v.(Tools); return nil })
	}
	if err := list(); err == nil || !strings.Contains(err.Error(), "this computer has no GPIO") || strings.Contains(err.Error(), "permission") {
		t.Errorf("nothing: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(root, "dev/gpiochip0"), 0o755); err != nil { // it cannot be read
		t.Fatal(err)
	}
	if err := list(); err == nil || !strings.Contains(err.Error(), "to learn whether a permission is missing, run `ferrule doctor`") {
		t.Errorf("nothing usable: %v", err)
	}
	addLED(t, root, "one")
	if err := list(); err != nil || len(tools) != 2 || !tools[0].Polled || tools[1].Reads || !strings.Contains(tools.String(), "led_one_set ") {
		t.Errorf("%+v, %v", tools, err)
	}
}

// TestNothing: a board without hardware says so.
func TestNothing(t *testing.T) {
	if got := (Served{Tools: 0, why: "this computer has no LED"}).String(); !strings.Contains(got, "There are no tools yet: this computer has no LED. What is plugged in later appears.") {
		t.Error(got)
	}
	if got := (Served{Tools: 1}).String(); strings.Contains(got, "no tools") {
		t.Error(got)
	}
}

// TestReach: it is said who can use the board.
func TestReach(t *testing.T) {
	loopback, everywhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8642}, &net.TCPAddr{IP: net.IPv6zero, Port: 8642}
	for _, test := range []struct {
		c    Config
		at   *net.TCPAddr
		want []string
	}{
		{Config{}, loopback, []string{"Every program on this computer can use it, also those of other users.", "ferrule up --http pi=http://127.0.0.1:8642"}},
		{Config{Anyone: true}, everywhere, []string{"Everyone who can reach this computer can use it, without a token.", "ferrule adopt pi"}},
		{Config{TokenFile: "x"}, everywhere, []string{"Programs that know the token in x can use it.", "without encryption", "url: http://ADDRESS-OF-THIS-COMPUTER:8642", "file: board.token"}},
	} {
		got := test.c.reach("pi", test.at, false)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: %q lacks %q", test.c, got, want)
			}
		}
	}
}
