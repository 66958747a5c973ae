// Package browser drives headless Chromium in tests, as a person does: it opens pages,
// presses buttons, ticks boxes and fills in fields.
//
//	test ── JSON messages over two pipes (DevTools protocol) ─▶ Chromium ─▶ pages on loopback
//
// The browser has an empty profile, resolves no names but localhost, and ends with the test.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// Limit is how long pages, and programs that open them, may take on a busy machine.
const Limit = 3 * time.Minute

// flags keep Chromium off the network, and let root run it.
var flags = []string{
	"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
	"--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync",
	"--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
	"--remote-debugging-pipe", "--log-level=3",
}

// Browser is one page of a browser; Tab and Private open others. Its methods fail the test
// on errors. They must be called by the goroutine of the test.
type Browser struct {
	*connection
	t       testing.TB
	context string // its cookies; empty for those that the browser has begun with
	session string
	view    View
}

// connection is the connection to the browser that all pages share.
type connection struct {
	requests io.Writer

	mu    sync.Mutex
	last  int
	waits map[int]chan<- reply
	seen  map[string]*seen // by session
	err   error            // why it reads no more
}

// Page is what the browser shows.
type Page struct {
	URL, Title, Text string
	// Status is the HTTP status; 0 if there was no answer.
	Status int
	// Ready is false while the page is loading.
	Ready bool
	// Left is true for the page on which a button was pressed, until the next one comes.
	Left bool
}

// reply is the answer to a request, or an event.
type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }

	SessionID, Method string
	Params            json.RawMessage
}

// Need returns the browser that FERRULE_TEST_BROWSER names, or skips the test. A test calls it
// before it starts anything, because a call that waits for a click would wait at the end.
func Need(t testing.TB) (program string) {
	t.Helper()
	program = os.Getenv("FERRULE_TEST_BROWSER")
	if program == "" {
		t.Skip("FERRULE_TEST_BROWSER is not set: see internal/testenv/browser")
	}
	return program
}

// Start starts the browser, or skips the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	program := Need(t)
	home, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	in, requests, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	replies, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(flags, "--user-data-dir="+filepath.Join(home, "profile"), "about:blank")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + home}
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &Browser{t: t, connection: &connection{requests: requests, waits: make(map[int]chan<- reply), seen: make(map[string]*seen)}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(replies)
	}()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		requests.Close()
		<-read
		replies.Close()
		if t.Failed() {
			t.Logf("the browser says %s", said.Bytes())
		}
		// The last of its processes may still write files.
		wait.Within(t, Limit, "the browser's profile is removed", func() bool { return os.RemoveAll(home) == nil })
	})
	b.open()
	return b
}

// open opens the page.
func (b *Browser) open() {
	b.t.Helper()
	params := map[string]any{"url": "about:blank"}
	if b.context != "" {
		params["browserContextId"] = b.context
	}
	var target struct{ TargetID string }
	b.must("Target.createTarget", params, &target)
	var attached struct{ SessionID string }
	b.must("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.watch(b.session)
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.must(domain+".enable", nil, nil)
	}
}

// Tab returns another page with the same cookies.
func (b *Browser) Tab() *Browser {
	b.t.Helper()
	other := &Browser{connection: b.connection, t: b.t, context: b.context}
	other.open()
	return other
}

// Private returns a page with no cookies, as of another person.
func (b *Browser) Private() *Browser {
	b.t.Helper()
	var made struct{ BrowserContextID string }
	other := &Browser{connection: b.connection, t: b.t}
	other.must("Target.createBrowserContext", nil, &made)
	other.context = made.BrowserContextID
	other.open()
	return other
}

// read reads replies and events until the browser ends.
func (c *connection) read(from io.Reader) {
	r := bufio.NewReader(from)
	for {
		data, err := r.ReadBytes(0)
		var got reply
		if err == nil {
			err = json.Unmarshal(data[:len(data)-1], &got)
		}
		c.mu.Lock()
		if err != nil {
			c.err = fmt.Errorf("the browser has ended: %w", err)
			for _, waits := range c.waits {
				close(waits)
			}
			c.waits = nil
			c.mu.Unlock()
			return
		}
		if waits, ok := c.waits[got.ID]; ok {
			waits <- got
			delete(c.waits, got.ID)
		} else if seen := c.seen[got.SessionID]; seen != nil {
			seen.event(got.Method, got.Params)
		}
		c.mu.Unlock()
	}
}

// ask makes a request of the DevTools protocol for a page, or for the browser if the session
// is empty.
func (c *connection) ask(session, method string, params, out any) error {
	answer := make(chan reply, 1)
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	c.last++
	id := c.last
	c.waits[id] = answer
	c.mu.Unlock()
	request := map[string]any{"id": id, "method": method}
	if params != nil {
		request["params"] = params
	}
	if session != "" {
		request["sessionId"] = session
	}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := c.requests.Write(append(data, 0)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	select {
	case got, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended", method)
		case got.Error != nil:
			return fmt.Errorf("%s: %s", method, got.Error.Message)
		case out == nil:
			return nil
		}
		return json.Unmarshal(got.Result, out)
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer within %v", method, Limit)
	}
}

func (b *Browser) must(method string, params, out any) {
	b.t.Helper()
	if err := b.ask(b.session, method, params, out); err != nil {
		b.t.Fatal(err)
	}
}

// run evaluates an expression in the page. It waits for a promise.
func (b *Browser) run(expression string, out any) error {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := b.ask(b.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got); err != nil {
		return err
	}
	if e := got.ExceptionDetails; e != nil {
		return errors.New(e.Text + " " + e.Exception.Description)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(got.Result.Value, out)
}

// Open opens an address. Wait waits for its page.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.run(`window.left = true`, nil)
	b.forget()
	var got struct{ ErrorText string }
	b.must("Page.navigate", map[string]any{"url": url}, &got)
	// A page that answers without a document, such as 204, is aborted.
	if got.ErrorText != "" && got.ErrorText != "net::ERR_ABORTED" {
		b.t.Fatalf("%s: %s", url, got.ErrorText)
	}
}

// Page returns what the browser shows now.
func (b *Browser) Page() (p Page, err error) {
	err = b.run(`(() => ({
		url: location.href, title: document.title, text: document.body ? document.body.innerText : '',
		status: (performance.getEntriesByType('navigation')[0] || {}).responseStatus || 0,
		ready: document.readyState === 'complete', left: !!window.left,
	}))()`, &p)
	return p, err
}

// Wait waits for the page that follows, and until a condition holds for it.
func (b *Browser) Wait(what string, holds func(Page) bool) (p Page) {
	b.t.Helper()
	var err error
	for end := time.Now().Add(Limit); ; time.Sleep(10 * time.Millisecond) {
		// Between two pages, there is nothing to evaluate in.
		if p, err = b.Page(); err == nil && p.Ready && !p.Left && holds(p) {
			return p
		}
		if time.Now().After(end) {
			b.t.Fatalf("not within %v: %s; the browser shows %+v, %v", Limit, what, p, err)
		}
	}
}

// Next waits for the page that follows.
func (b *Browser) Next() Page {
	b.t.Helper()
	return b.Wait("a page", func(p Page) bool { return p.URL != "about:blank" })
}

// Press presses the button or link with a label. Wait or Next waits for what follows.
func (b *Browser) Press(label string) {
	b.t.Helper()
	b.do(fmt.Sprintf(`(() => {
		const label = %q
		const all = [...document.querySelectorAll('button, a, input[type=submit]')]
		const found = all.filter(e => (e.innerText || e.value || '').trim() === label)
		if (found.length !== 1) return found.length + ' of ' + JSON.stringify(all.map(e => e.innerText || e.value))
		window.left = true
		setTimeout(() => found[0].click(), 0)
		return ''
	})()`, label), "pressing "+label)
}

// Tick ticks a checkbox, or clears it; or it chooses a radio button.
func (b *Browser) Tick(name, value string, on bool) {
	b.t.Helper()
	b.do(fmt.Sprintf(`(() => {
		const all = [...document.querySelectorAll('input[type=checkbox], input[type=radio]')]
		const found = all.filter(e => e.name === %q && e.value === %q)
		if (found.length !== 1) return found.length + ' of ' + JSON.stringify(all.map(e => e.name + '=' + e.value))
		if (found[0].checked !== %t) found[0].click()
		return ''
	})()`, name, value, on), "the box "+name+" "+value)
}

// Fill types a text into a field.
func (b *Browser) Fill(name, value string) {
	b.t.Helper()
	b.do(fmt.Sprintf(`(() => {
		const found = document.getElementsByName(%q)
		if (found.length !== 1) return found.length + ' fields'
		found[0].value = %q
		return ''
	})()`, name, value), "the field "+name)
}

// do runs an expression that returns why it could not be done, or an empty text.
func (b *Browser) do(expression, what string) {
	b.t.Helper()
	var why string
	err := b.run(expression, &why)
	if err != nil || why != "" {
		p, _ := b.Page()
		b.t.Fatalf("%s: %s %v; the browser shows %+v", what, why, err, p)
	}
}

// Program returns a program for the environment variable BROWSER, and the addresses that
// others open with it. The program ends at once, as one that passes an address to a running
// browser does.
func Program(t testing.TB) (path string, opened <-chan string) {
	t.Helper()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "opened")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "browser")
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nprintf '%%s\\n' \"$1\" >'%s'\n", pipe), 0o700); err != nil {
		t.Fatal(err)
	}
	// It is opened for writing too, so that it does not end with the first writer.
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	urls := make(chan string, 16)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			select {
			case urls <- strings.TrimSpace(lines.Text()):
			default: // nobody waits for so many
			}
		}
	}()
	t.Cleanup(func() {
		f.Close()
		<-read
	})
	return path, urls
}
