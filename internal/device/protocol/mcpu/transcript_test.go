package mcpu

import (
	"context"
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

var update = flag.Bool("update", false, "rewrite the manifests in testdata")

// TestTranscripts plays testdata/transcripts: what a board sends, byte by byte, and
// the expected outcome. Time is simulated. Each file has a script of these commands:
//
//	bitrate N, safewrite N       the properties of the link
//	first-id N                   the id of the first request; 1 by default
//	next-id N                    the ids have wrapped around to N
//	deaf                         the board does not read
//	greet                        start the greeting
//	board NAME                   greet, and answer like testdata/boards/NAME.txtar
//	> LINE                       the gateway sends exactly this line and LF, in
//	                             one write
//	< LINE                       the board sends this line and CR LF
//	<< "TEXT"                    the board sends these bytes
//	flood N                      the board sends N bytes without a line end
//	wait D                       let time pass
//	silent D                     let time pass; the gateway sends nothing
//	cut                          the board breaks the connection
//	manifest                     the greeting succeeded; its result is the
//	                             section manifest.json
//	not-mine "TEXT"              the greeting failed with TEXT: not this protocol
//	fails "TEXT"                 the greeting failed with TEXT
//	call [D] TOOL [ARGS]         start a call, with deadline D or 30s
//	cancel                       the caller cancels
//	busy TOOL [ARGS]             a second call is refused at once
//	result JSON                  the call returned this
//	error CODE ran|not "TEXT"    the call failed with TEXT; ran: it may have run
//	note "TEXT"                  the trace has a note with this text
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
				p := &player{t: t, archive: archive, protocol: New(), notes: make(chan string, 1000)}
				p.protocol.firstID = func() int { return 1 }
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

// player plays one transcript.
type player struct {
	t        *testing.T
	archive  *txtar.Archive
	protocol *Protocol
	info     transport.Info
	deaf     bool
	notes    chan string

	link    transport.Link
	far     io.ReadWriteCloser
	lines   chan string // what the gateway sent
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
	case "bitrate":
		p.info.BitRate, _ = strconv.Atoi(rest)
	case "safewrite":
		p.info.SafeWrite, _ = strconv.Atoi(rest)
	case "first-id":
		first, err := strconv.Atoi(rest)
		p.protocol.firstID = func() int { return first }
		return err
	case "next-id":
		return p.nextID(rest)
	case "deaf":
		p.deaf = true
	case "greet":
		p.greet()
	case "board":
		return p.board(rest)
	case ">":
		return p.expect(rest)
	case "<":
		return p.write(rest + "\r\n")
	case "<<":
		text, err := strconv.Unquote(rest)
		return errors.Join(err, p.write(text))
	case "flood":
		n, err := strconv.Atoi(rest)
		go io.WriteString(p.far, strings.Repeat("x", n)) // as far as it is read
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
	case "result":
		return p.result(rest)
	case "error":
		return p.failure(rest)
	case "note":
		return p.note(rest)
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func (p *player) nextID(text string) error {
	next, err := strconv.Atoi(text)
	s := p.session.(*session)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids.Next = next
	return err
}

func (p *player) greet() {
	p.link, p.far = transporttest.Pipe(p.info)
	p.link.(transport.Traceable).Observe(func(f transport.Frame) {
		if f.Note != "" {
			p.notes <- f.Note
		}
	})
	p.lines = make(chan string)
	if !p.deaf {
		go receive(p.far, p.lines)
	}
	p.greeted = make(chan greeted, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		session, manifest, err := p.protocol.Greet(ctx, p.link)
		p.greeted <- greeted{session, manifest, err}
	}()
}

// receive reads what the gateway writes. A read returns what one write wrote.
func receive(far io.Reader, lines chan<- string) {
	defer close(lines)
	buf := make([]byte, 64<<10)
	for {
		n, err := far.Read(buf)
		if err != nil {
			return
		}
		line, whole := strings.CutSuffix(string(buf[:n]), "\n")
		if !whole || strings.Contains(line, "\n") {
			line = fmt.Sprintf("not one line: %q", buf[:n])
		}
		lines <- line
	}
}

func (p *player) board(name string) error {
	p.greet()
	id := p.protocol.firstID()
	for i, answer := range greetingAnswers(p.t, name, id) {
		method := []string{"get_info", "list_tools"}[i]
		if err := p.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s"}`, id+i, method)); err != nil {
			return err
		}
		if err := p.write(answer); err != nil {
			return err
		}
	}
	return p.start()
}

// greetingAnswers returns the answers of a board in testdata/boards to a greeting whose
// first id is id.
func greetingAnswers(t testing.TB, name string, id int) (answers []string) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata/boards", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for i, method := range []string{"get_info", "list_tools"} {
		result := strings.TrimSpace(section(t, archive, method))
		answers = append(answers, fmt.Sprintf(`{"result":%s,"jsonrpc":"2.0","id":%d}`+"\r\n", result, id+i))
	}
	return answers
}

// start takes the session out of the greeting and runs it.
func (p *player) start() error {
	g := <-p.greeted
	if g.err != nil {
		return fmt.Errorf("greeting: %w", g.err)
	}
	p.session, p.read = g.session, g.manifest
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.ran = make(chan error, 1)
	go func() { p.ran <- p.session.Run(ctx) }()
	return nil
}

func (p *player) expect(want string) error {
	select {
	case got, ok := <-p.lines:
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
	_, err := io.WriteString(p.far, text)
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
	case got := <-p.lines:
		return fmt.Errorf("the gateway sent %s", got)
	case <-time.After(d):
		return nil
	}
}

func (p *player) manifest() error {
	if err := p.start(); err != nil {
		return err
	}
	got, err := json.MarshalIndent(p.read, "", "  ")
	if err != nil {
		return err
	}
	got = append(got, '\n')
	for i, f := range p.archive.Files {
		if f.Name != "manifest.json" {
			continue
		}
		if *update {
			p.archive.Files[i].Data = got
		} else if string(f.Data) != string(got) {
			return fmt.Errorf("the manifest is\n%s", got)
		}
		return nil
	}
	return fmt.Errorf("section manifest.json is missing")
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
		call := &ferrule.Call{Device: "board", Tool: tool, Args: json.RawMessage(args), Timeout: ferrule.Duration(timeout)}
		result, err := p.session.Invoke(ctx, call)
		done <- called{result, err}
	}(p.called)
	return nil
}

func (p *player) busy(rest string) error {
	tool, args, _ := strings.Cut(rest, " ")
	_, err := p.session.Invoke(context.Background(), &ferrule.Call{Device: "board", Tool: tool, Args: json.RawMessage(args)})
	if e, ok := err.(*ferrule.Error); !ok || e.Code != ferrule.Busy || e.MayHaveRun() {
		return fmt.Errorf("the call ended with %#v", err)
	}
	return nil
}

func (p *player) result(want string) error {
	c := <-p.called
	p.cancel()
	if c.err != nil {
		return fmt.Errorf("the call failed: %v", c.err)
	}
	if got := string(c.result.Value); got != want {
		return fmt.Errorf("the call returned %s", got)
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

// finish ends the session. The synctest bubble reports goroutines that are left.
func (p *player) finish() {
	if p.stop != nil {
		p.stop()
		<-p.ran
	}
	if p.link != nil {
		p.link.Close()
		p.far.Close()
		if !p.deaf {
			for range p.lines {
			}
		}
	}
}

// TestVectors decodes the answers in the test vectors of the device SDK.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../../../../thing/testdata/*.txtar")
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
			var want struct{ ID int }
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			got := scan([]byte(text))
			if len(got) != 1 || got[0].id != want.ID || got[0].mangled() != (want.ID == 0) {
				t.Errorf("%s: %s\ndecoded as %+v", file, text, got)
			}
		}
	}
}
