package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/program"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// base returns a hook that is asked before each call.
func base(name string) Config {
	return Config{Name: name, Before: true, Timeout: maxTimeout, Parallel: 2}
}

// script returns a hook that is a shell script.
func script(t *testing.T, text string) Config {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	c := base("script")
	c.Command = program.Command{Args: []string{path}, Env: []string{"DIR=" + filepath.Dir(path)}}
	return c
}

func open(t *testing.T, hooks ...Config) *Hooks {
	t.Helper()
	if err := Check(hooks); err != nil {
		t.Fatal(err)
	}
	h := New(hooks, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	return h
}

func write() *ferrule.Call {
	args := json.RawMessage(`{"pin":2,"code":"1234"}`)
	return &ferrule.Call{
		ID: "boot-1", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthToken, Devices: "robot"}, Device: "robot", Tool: "gpio_write",
		Args: args, DecodedArgs: map[string]any{"pin": json.Number("2"), "code": "1234"},
		Target: ferrule.Target{
			Device: &ferrule.Device{ID: "robot", Kind: "k", Labels: map[string]string{"room": "lab"}},
			Tool:   &ferrule.Tool{Name: "gpio_write", Effect: ferrule.Changes, Secrets: []string{"code"}},
		},
	}
}

// TestProgram: a program is asked with all that is known about the call, except for secrets,
// and its answer decides.
func TestProgram(t *testing.T) {
	c := script(t, `cat > "$DIR/got"; echo '{"allow": false, "reason": "quiet hours\u0007"}'`)
	err := open(t, c).Before(t.Context(), write())
	if e := ferrule.AsError(err); err == nil || e.Code != ferrule.Denied || e.MayHaveRun() || !strings.HasPrefix(e.Message, "gpio_write of robot is refused by the hook script: quiet hours") || strings.Contains(e.Message, "\a") {
		t.Errorf("got %v", err)
	}
	got, err := os.ReadFile(filepath.Join(filepath.Dir(c.Command.Args[0]), "got"))
	if err != nil {
		t.Fatal(err)
	}
	var m message
	if err := json.Unmarshal(got, &m); err != nil || m.Phase != phaseBefore || m.Call != "boot-1" || m.Principal.Name != "claude" || m.Device.Labels["room"] != "lab" || m.Effect != ferrule.Changes {
		t.Errorf("got %s, %v", got, err)
	}
	if strings.Contains(string(got), "1234") || !strings.Contains(string(got), `"pin":2`) {
		t.Errorf("the arguments are %s", m.Arguments)
	}
	if err := open(t, script(t, `echo '{"allow": true}'`)).Before(t.Context(), write()); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestFailures: whatever a hook does instead of an answer, it does not allow the call, unless
// its owner chose so.
func TestFailures(t *testing.T) {
	for name, text := range map[string]string{
		"exit status":     `echo '{"allow": true}'; exit 1`,
		"no answer":       ``,
		"other member":    `echo '{"Allow": true}'`,
		"no boolean":      `echo '{"allow": "true"}'`,
		"two members":     `echo '{"allow": true, "allow": true}'`,
		"no object":       `echo true`,
		"no reason":       `echo '{"allow": false, "reason": 3}'`,
		"trailing":        `echo '{"allow": true} {"allow": true}'`,
		"long":            `head -c 100000 /dev/zero`,
		"output at large": `yes`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := script(t, text)
			h := open(t, c)
			if err := h.Before(t.Context(), write()); ferrule.AsError(err).Code != ferrule.Denied || len(h.Problems()) != 1 || !strings.Contains(h.Problems()[0], "calls are refused") {
				t.Errorf("got %v, problems %q", err, h.Problems())
			}
			c.AllowOnError = true
			if h := open(t, c); h.Before(t.Context(), write()) != nil || len(h.Problems()) != 1 {
				t.Errorf("refused, problems %q", h.Problems())
			}
		})
	}
}

// TestTimeout: a program that does not answer is killed with what it started.
func TestTimeout(t *testing.T) {
	c := script(t, `trap "" TERM; sleep 1000 & echo $! > "$DIR/pid"; wait`)
	c.Timeout = 500 * time.Millisecond
	h := open(t, c)
	if err := h.Before(t.Context(), write()); ferrule.AsError(err).Code != ferrule.Denied || !strings.Contains(h.Problems()[0], "no answer within 500ms") {
		t.Errorf("got %v, problems %q", err, h.Problems())
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(c.Command.Args[0]), "pid"))
	if err != nil {
		t.Skip("the machine is too busy to start the program") // it was killed before
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the process has ended", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return runtime.GOOS != "linux" || err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// TestCancelled: when the caller is gone, the hook is not to blame.
func TestCancelled(t *testing.T) {
	h := open(t, script(t, `sleep 1000`))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := h.Before(ctx, write()); ferrule.AsError(err).Code != ferrule.Cancelled || len(h.Problems()) != 0 {
		t.Errorf("got %v, problems %q", err, h.Problems())
	}
}

// serve starts a web service and returns a hook for it.
func serve(t *testing.T, handle http.HandlerFunc) Config {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	c := base("service")
	c.URL, c.Token = s.URL, "0123456789abcdef"
	return c
}

// TestService: a web service is asked with its token. Its redirects are not followed.
func TestService(t *testing.T) {
	answer := `{"allow":true}`
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var m message
		if json.NewDecoder(r.Body).Decode(&m) != nil || m.Tool != "gpio_write" || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		io.WriteString(w, answer)
	})
	h := open(t, c)
	if err := h.Before(t.Context(), write()); err != nil {
		t.Error(err, h.Problems())
	}
	answer = `{"allow":false,"reason":"no"}`
	if err := h.Before(t.Context(), write()); ferrule.AsError(err).Code != ferrule.Denied || !strings.HasSuffix(ferrule.AsError(err).Message, ": no") || len(h.Problems()) != 0 {
		t.Errorf("got %v, problems %q", err, h.Problems())
	}
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"allow":true}`) })
	for name, handle := range map[string]http.HandlerFunc{
		"307": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
		},
		"500":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, `{"allow":true}`, 500) },
		"limit": func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat([]byte(" "), 2*maxAnswer)) },
	} {
		h := open(t, serve(t, handle))
		if err := h.Before(t.Context(), write()); ferrule.AsError(err).Code != ferrule.Denied || len(h.Problems()) != 1 {
			t.Errorf("%s: got %v, problems %q", name, err, h.Problems())
		}
	}
}

// TestParallel: no more questions are under way than the hook permits, and each is answered.
func TestParallel(t *testing.T) {
	var now, most atomic.Int64
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		io.WriteString(w, `{"allow":true}`)
	})
	h := open(t, c)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := h.Before(t.Context(), write()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n < 1 || n > int64(c.Parallel) {
		t.Errorf("%d questions at a time", n)
	}
}

// TestAfter: a hook is told outcomes without that the caller waits, and those that are too
// many are lost.
func TestAfter(t *testing.T) {
	var mu sync.Mutex
	var got []message
	hold := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var m message
		json.NewDecoder(r.Body).Decode(&m)
		mu.Lock()
		got = append(got, m)
		mu.Unlock()
		<-hold
	})
	c.Before, c.After = false, true
	h := open(t, c)
	h.After(write(), 1500*time.Millisecond, ferrule.Errorf(ferrule.Unanswered, "no answer"))
	h.After(write(), 0, nil)
	wait.For(t, "the hook was told twice", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == 2 })
	for range maxWaiting {
		h.After(write(), 0, nil)
	}
	if all := h.Problems(); len(all) != 1 || !strings.Contains(all[0], "is lost") || !strings.Contains(all[0], "calls go on") {
		t.Errorf("problems %q", all)
	}
	close(hold)
	h.Close()
	h.After(write(), 0, nil) // nothing happens any more
	if len(got) != maxWaiting {
		t.Errorf("told %d times", len(got))
	}
	codes := make(map[ferrule.Code]outcome)
	for _, m := range got {
		codes[m.Outcome.Code] = *m.Outcome
	}
	if o := codes[ferrule.Unanswered]; !o.MayHaveRun || o.Took != 1500 || o.Message != "no answer" || len(codes) != 2 {
		t.Errorf("got %+v", codes)
	}
}

// TestMatches: a hook sees what it was configured for. The gateway's own tools are seen only
// if they are named.
func TestMatches(t *testing.T) {
	of := func(device string, effect ferrule.Effect, op ferrule.Operation) *ferrule.Call {
		return &ferrule.Call{Operation: op, Target: ferrule.Target{Device: &ferrule.Device{ID: device}, Tool: &ferrule.Tool{Effect: effect}}}
	}
	for _, test := range []struct {
		devices []string
		effects []ferrule.Effect
		call    *ferrule.Call
		want    bool
	}{
		{nil, nil, of("robot", ferrule.Reads, ""), true},
		{nil, nil, of("gateway", ferrule.Reads, ""), false},
		{[]string{"*"}, nil, of("gateway", ferrule.Reads, ""), false},
		{[]string{"gateway"}, nil, of("gateway", ferrule.Reads, ""), true},
		{[]string{"lamp-*", "door"}, nil, of("lamp-2", ferrule.Reads, ""), true},
		{[]string{"lamp-*", "door"}, nil, of("robot", ferrule.Reads, ""), false},
		{nil, []ferrule.Effect{ferrule.Changes}, of("robot", "", ""), true},
		{nil, []ferrule.Effect{ferrule.Changes}, of("robot", ferrule.Endangers, ""), false},
		{nil, []ferrule.Effect{ferrule.Changes}, of("robot", "", ferrule.ReadResource), false},
	} {
		k := hook{Config: Config{Devices: test.devices, Effects: test.effects}}
		if got := k.matches(test.call); got != test.want {
			t.Errorf("%v %v: got %t for %s %s", test.devices, test.effects, got, test.call.Target.Device.ID, test.call.Target.Tool.Effect)
		}
	}
}

// TestReplace: a hook that stays keeps its state.
func TestReplace(t *testing.T) {
	a, b := base("a"), base("b")
	a.URL, b.URL = "http://127.0.0.1:1", "http://127.0.0.1:1"
	h := open(t, a)
	h.note((*h.current.Load())[0], errors.New("broken"))
	if h.Replace([]Config{a}) || !h.Replace([]Config{a, b}) || len(h.Problems()) != 1 {
		t.Errorf("problems %q", h.Problems())
	}
	if !h.Replace(nil) || len(h.Problems()) != 0 || h.Before(t.Context(), write()) != nil {
		t.Error("the hooks are still there")
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"both":         func(c *Config) { c.Command.Args = []string{"/bin/true"} },
		"neither":      func(c *Config) { c.URL = "" },
		"name":         func(c *Config) { c.Name = "A b" },
		"never":        func(c *Config) { c.Before = false },
		"no timeout":   func(c *Config) { c.Timeout = 0 },
		"long timeout": func(c *Config) { c.Timeout = time.Hour },
		"parallel":     func(c *Config) { c.Parallel = 1000 },
		"pattern":      func(c *Config) { c.Devices = []string{"["} },
		"effect":       func(c *Config) { c.Effects = []ferrule.Effect{"writes"} },
		"no TLS":       func(c *Config) { c.URL = "http://hooks.example.com" },
		"password":     func(c *Config) { c.URL = "https://me:secret@hooks.example.com" },
		"scheme":       func(c *Config) { c.URL = "ftp://hooks.example.com" },
		"program":      func(c *Config) { c.URL, c.Command.Args = "", []string{"true"} },
		"token":        func(c *Config) { c.URL, c.Token, c.Command.Args = "", "x", []string{"/bin/true"} },
	} {
		c := base("a")
		c.URL = "https://hooks.example.com"
		if err := Check([]Config{c}); err != nil {
			t.Fatal(err)
		}
		if change(&c); Check([]Config{c}) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c := base("a")
	c.URL = "http://[::1]:80/x"
	if Check([]Config{c}) != nil || Check([]Config{c, c}) == nil || Check(make([]Config, maxHooks+1)) == nil {
		t.Error("got another result")
	}
}

// FuzzAnswer: no answer allows a call without an explicit true, and reasons are short.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"allow":true}`, `{"allow":false,"reason":"x"}`, `{"allow":true,"\u0061llow":false}`, `null`, `{"allow":1}`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parseAnswer(data)
		if err != nil && a.allow || len(a.reason) > 4*ferrule.MaxReason {
			t.Errorf("got %+v, %v", a, err)
		}
		if err == nil && a.allow && !bytes.Contains(data, []byte("true")) {
			t.Errorf("%s allows", data)
		}
	})
}
