package xiaozhi

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var update = flag.Bool("update", false, "rewrite the manifests and results in testdata")

// TestTranscripts plays testdata/transcripts: what a device sends, byte by byte, and the
// expected outcome. Time is simulated. Each file has a script of these commands:
//
//	transport ws|mqtt            the transport of the link; mqtt by default
//	safewrite N                  a property of the link
//	vision URL TOKEN             where pictures are uploaded
//	picture MIME TEXT            a picture that arrives during the next call
//	next-id N                    the ids have wrapped around to N
//	greet                        start the greeting
//	device                       greet, and answer like a device with one tool
//	> TEXT                       the gateway sends exactly this message
//	< TEXT                       the device sends this message
//	<< "TEXT"                    the same, quoted
//	sound HEX                    the device sends a binary message
//	flood N                      the device sends a message of N bytes
//	wait D                       let time pass
//	silent D                     let time pass; the gateway sends nothing
//	cut                          the device breaks the connection
//	manifest                     the greeting succeeded; its result is the
//	                             section manifest.json
//	not-mine "TEXT"              the greeting failed with TEXT: not this protocol
//	fails "TEXT"                 the greeting failed with TEXT
//	call [D] TOOL [ARGS]         start a call, with deadline D or 30s
//	cancel                       the caller cancels
//	busy TOOL [ARGS]             a second call is refused at once
//	result JSON                  the call returned this and no content
//	answer                       the call returned the section result.json
//	error CODE ran|not "TEXT"    the call failed with TEXT; ran: it may have run
//	note "TEXT"                  the trace has a note with this text
//	notified METHOD [PARAMS]     the next notification was passed on
//	not-notified                 no other notification was passed on
//
// Empty lines and lines with # are skipped.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				p := newPlayer(t, archive)
				defer p.finish()
				p.play(section(t, archive, "script"))
			})
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func section(t testing.TB, a *txtar.Archive, name string) string {
	t.Helper()
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	t.Fatalf("no section %s", name)
	return ""
}

// album implements Pictures with what a script has added.
type album struct {
	url, token string
	next       []ferrule.Content
}

func (a *album) Offer(string) (url, token string) { return a.url, a.token }

func (a *album) Await(token string) func() []ferrule.Content {
	return func() []ferrule.Content {
		if token != a.token {
			return nil
		}
		taken := a.next
		a.next = nil
		return taken
	}
}

// soundMark is the prefix of a line that is a binary message.
const soundMark = "\x00sound"

// lines is a link of lines that can carry sound. It checks what is sent.
type lines struct{ *transport.Stream }

func (l lines) Recv(ctx context.Context) (transport.Message, error) {
	m, err := l.Stream.Recv(ctx)
	m.Channel = "text"
	if sound, ok := bytes.CutPrefix(m.Data, []byte(soundMark)); ok {
		return transport.Message{Channel: "binary", Data: sound}, err
	}
	return m, err
}

func (l lines) Send(ctx context.Context, m transport.Message) error {
	if m.Channel != "" { // MQTT has no channels, and a WebSocket sends text by default
		return fmt.Errorf("sent on channel %q", m.Channel)
	}
	return l.Stream.Send(ctx, m)
}

// player plays one transcript.
type player struct {
	t        *testing.T
	archive  *txtar.Archive
	protocol *Protocol
	album    album
	info     transport.Info
	notes    chan string
	notified chan string

	link    transport.Link
	far     io.ReadWriteCloser
	sent    chan string // what the gateway sent
	greeted chan greeted
	session protocol.Session
	read    *ferrule.Manifest
	ran     chan error // what Run returned
	stop    context.CancelFunc
	cancel  context.CancelFunc // of the call
	called  chan called
}

type greeted struct {
	session  protocol.Session
	manifest *ferrule.Manifest
	err      error
}

type called struct {
	result *ferrule.Result
	err    error
}

func newPlayer(t *testing.T, archive *txtar.Archive) *player {
	p := &player{
		t: t, archive: archive, info: transport.Info{Transport: "mqtt"},
		notes: make(chan string, 1000), notified: make(chan string, 1000),
	}
	p.protocol = New(Parts{Version: "1.0", Pictures: &p.album})
	p.protocol.firstID = func() int { return 1 }
	p.protocol.firstBeat = func() time.Duration { return beat }
	sessions := 0
	p.protocol.sessionID = func() string { sessions++; return fmt.Sprintf("s%d", sessions) }
	return p
}

func (p *player) play(script string) {
	for i, line := range strings.Split(script, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		if err := p.do(word, rest); err != nil {
			p.t.Fatalf("script line %d: %s\n%v", i+1, line, err)
		}
	}
}

func (p *player) do(word, rest string) error {
	switch word {
	case "transport":
		p.info.Transport = rest
	case "safewrite":
		p.info.SafeWrite, _ = strconv.Atoi(rest)
	case "vision":
		p.album.url, p.album.token, _ = strings.Cut(rest, " ")
	case "picture":
		mime, text, _ := strings.Cut(rest, " ")
		p.album.next = append(p.album.next, ferrule.Content{Type: ferrule.ImageContent, MIME: mime, Data: []byte(text)})
	case "next-id":
		next, err := strconv.Atoi(rest)
		p.session.(*session).ids.Next = next
		return err
	case "greet":
		p.greet()
	case "device":
		return p.device()
	case ">":
		return p.expect(rest)
	case "<":
		return p.write(rest)
	case "<<":
		text, err := strconv.Unquote(rest)
		return errors.Join(err, p.write(text))
	case "sound":
		data, err := hex.DecodeString(rest)
		return errors.Join(err, p.write(soundMark+string(data)))
	case "flood":
		n, err := strconv.Atoi(rest)
		go io.WriteString(p.far, strings.Repeat("x", n)+"\n") // as far as it is read
		synctest.Wait()
		return err
	case "wait", "silent":
		return p.wait(rest, word == "silent")
	case "cut":
		return p.far.Close()
	case "manifest":
		return p.manifest()
	case "not-mine", "fails":
		return p.notGreeted(rest, word == "not-mine")
	case "call":
		return p.call(rest)
	case "cancel":
		p.cancel()
	case "busy":
		return p.busy(rest)
	case "result", "answer":
		return p.result(rest)
	case "error":
		return p.failure(rest)
	case "note":
		return p.note(rest)
	case "notified":
		return p.wasNotified(rest)
	case "not-notified":
		synctest.Wait()
		if n := len(p.notified); n > 0 {
			return fmt.Errorf("%d were passed on", n)
		}
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func (p *player) greet() {
	link, far := transporttest.Pipe(p.info)
	p.link, p.far = lines{link.(*transport.Stream)}, far
	p.link.(transport.Traceable).Observe(func(f transport.Frame) {
		if f.Note != "" {
			p.notes <- f.Note
		}
	})
	p.sent = make(chan string)
	go receive(p.far, p.sent)
	p.greeted = make(chan greeted, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		session, manifest, err := p.protocol.Greet(ctx, p.link)
		p.greeted <- greeted{session, manifest, err}
	}()
}

// receive reads what the gateway sends. A read returns what one write wrote.
func receive(far io.Reader, sent chan<- string) {
	defer close(sent)
	buf := make([]byte, 64<<10)
	for {
		n, err := far.Read(buf)
		if err != nil {
			return
		}
		sent <- strings.TrimSuffix(string(buf[:n]), "\n")
	}
}

// usual is the greeting of the device in most scripts.
var usual = []string{
	`> {"type":"mcp","payload":{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"ferrule","version":"1.0"}}}}`,
	`< {"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"bread-compact-wifi","version":"2.4.2"}}}}`,
	`> {"type":"mcp","payload":{"jsonrpc":"2.0","method":"notifications/initialized"}}`,
	`> {"type":"mcp","payload":{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"","withUserTools":true}}}`,
	`< {"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"self.lamp.on","description":"Turn the lamp on","inputSchema":{"type":"object","properties":{}}}]}}}`,
}

// usualHello is the start of a WebSocket.
var usualHello = []string{
	`< {"type":"hello","version":1,"features":{"mcp":true},"transport":"websocket","audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`,
	`> {"type":"hello","transport":"websocket","session_id":"s1","audio_params":{"format":"opus","sample_rate":24000,"channels":1,"frame_duration":60}}`,
}

func (p *player) device() error {
	p.greet()
	if p.info.Transport == "ws" {
		p.play(strings.Join(usualHello, "\n"))
	}
	script := strings.Join(usual, "\n")
	if p.album.url != "" {
		vision := fmt.Sprintf(`"capabilities":{"vision":{"url":%q,"token":%q}}`, p.album.url, p.album.token)
		script = strings.Replace(script, `"capabilities":{}`, vision, 1)
	}
	p.play(script)
	return p.start()
}

// start takes the session out of the greeting and runs it.
func (p *player) start() error {
	g := <-p.greeted
	if g.err != nil {
		return fmt.Errorf("greeting: %w", g.err)
	}
	p.session, p.read = g.session, g.manifest
	p.session.(protocol.Notifier).Notify(func(method string, params json.RawMessage) {
		p.notified <- strings.TrimSpace(method + " " + string(params))
	})
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.ran = make(chan error, 1)
	go func() { p.ran <- p.session.Run(ctx) }()
	synctest.Wait()
	return nil
}

func (p *player) expect(want string) error {
	select {
	case got, ok := <-p.sent:
		if !ok {
			return fmt.Errorf("the link is closed")
		}
		if got != want {
			return fmt.Errorf("the gateway sent %s", got)
		}
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("the gateway sent nothing for a minute")
	}
}

func (p *player) write(text string) error {
	_, err := io.WriteString(p.far, text+"\n")
	synctest.Wait()
	return err
}

func (p *player) wait(duration string, silent bool) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	if !silent {
		time.Sleep(d)
		return nil
	}
	select {
	case got := <-p.sent:
		return fmt.Errorf("the gateway sent %s", got)
	case <-time.After(d):
		return nil
	}
}

func (p *player) manifest() error {
	if err := p.start(); err != nil {
		return err
	}
	return p.same("manifest.json", p.read)
}

// same compares a value with a section, or puts it there.
func (p *player) same(name string, value any) error {
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	got = append(got, '\n')
	for i, f := range p.archive.Files {
		if f.Name != name {
			continue
		}
		if *update {
			p.archive.Files[i].Data = got
		} else if string(f.Data) != string(got) {
			return fmt.Errorf("got\n%s", got)
		}
		return nil
	}
	return fmt.Errorf("section %s is missing", name)
}

func (p *player) notGreeted(quoted string, notMine bool) error {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return err
	}
	g := <-p.greeted
	switch {
	case g.err == nil:
		return fmt.Errorf("the greeting succeeded")
	case !strings.Contains(g.err.Error(), text):
		return fmt.Errorf("the greeting failed with: %v", g.err)
	case errors.Is(g.err, protocol.ErrNotMine) != notMine:
		return fmt.Errorf("not mine: %t, in: %v", !notMine, g.err)
	}
	return nil
}

func (p *player) call(rest string) error {
	timeout := 30 * time.Second
	word, after, _ := strings.Cut(rest, " ")
	if d, err := time.ParseDuration(word); err == nil {
		timeout, rest = d, after
	}
	tool, args, _ := strings.Cut(rest, " ")
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	p.cancel = cancel
	p.called = make(chan called, 1)
	go func(done chan<- called) {
		call := &ferrule.Call{Device: "toy", Tool: tool, Args: json.RawMessage(args), Timeout: ferrule.Duration(timeout)}
		result, err := p.session.Invoke(ctx, call)
		done <- called{result, err}
	}(p.called)
	return nil
}

func (p *player) busy(rest string) error {
	tool, args, _ := strings.Cut(rest, " ")
	_, err := p.session.Invoke(context.Background(), &ferrule.Call{Device: "toy", Tool: tool, Args: json.RawMessage(args)})
	if e, ok := err.(*ferrule.Error); !ok || e.Code != ferrule.Busy || e.MayHaveRun() {
		return fmt.Errorf("the call ended with %#v", err)
	}
	return nil
}

// result checks what a call returned; without a value, all of it.
func (p *player) result(want string) error {
	c := <-p.called
	p.cancel()
	switch {
	case c.err != nil:
		return fmt.Errorf("the call failed: %v", c.err)
	case want == "":
		return p.same("result.json", c.result)
	case string(c.result.Value) != want || c.result.Content != nil:
		return fmt.Errorf("the call returned %s and %v", c.result.Value, c.result.Content)
	}
	return nil
}

func (p *player) failure(rest string) error {
	var code, ran, text string
	if _, err := fmt.Sscanf(rest, "%s %s %q", &code, &ran, &text); err != nil {
		return err
	}
	c := <-p.called
	p.cancel()
	if c.err == nil {
		return fmt.Errorf("the call returned %s", c.result.Value)
	}
	e, ok := c.err.(*ferrule.Error)
	if !ok || string(e.Code) != code || e.MayHaveRun() != (ran == "ran") || !strings.Contains(e.Message, text) {
		return fmt.Errorf("the call failed with %#v", c.err)
	}
	return nil
}

func (p *player) note(quoted string) error {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return err
	}
	synctest.Wait()
	var seen []string
	for len(p.notes) > 0 {
		note := <-p.notes
		if strings.Contains(note, text) {
			return nil
		}
		seen = append(seen, note)
	}
	return fmt.Errorf("the notes are %q", seen)
}

func (p *player) wasNotified(want string) error {
	synctest.Wait()
	select {
	case got := <-p.notified:
		if got != want {
			return fmt.Errorf("got %s", got)
		}
		return nil
	default:
		return errors.New("no notification was passed on")
	}
}

// finish ends the session. The synctest bubble reports goroutines that are left.
func (p *player) finish() {
	if p.stop != nil {
		p.stop()
		<-p.ran
	}
	if p.link != nil {
		p.link.Close()
		p.far.Close()
		for range p.sent {
		}
	}
}

// TestVectors decodes the answers in the test vectors of the device SDK.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../../../../thing/xiaozhi/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(section(t, archive, "wire")) {
			text, ok := strings.CutPrefix(strings.TrimSpace(line), "< ")
			if !ok {
				continue
			}
			var want struct{ Payload struct{ ID int } }
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			if got := decode(transport.Message{Data: []byte(text)}); got.kind != kindAnswer || got.answer.id != want.Payload.ID {
				t.Errorf("%s: %s\ndecoded as %+v", file, text, got)
			}
		}
	}
}
