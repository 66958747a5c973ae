package xiaozhi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// spoken returns what the devices in testdata/transcripts send, for each transcript.
func spoken(f *testing.F) (transcripts [][]string) {
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var messages []string
		for line := range strings.Lines(section(f, archive, "script")) {
			switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "device":
				for _, line := range usual {
					if text, ok := strings.CutPrefix(line, "< "); ok {
						messages = append(messages, text)
					}
				}
			case "<":
				messages = append(messages, rest)
			case "<<":
				text, err := strconv.Unquote(rest)
				if err != nil {
					f.Fatal(err)
				}
				messages = append(messages, text)
			}
		}
		transcripts = append(transcripts, messages)
	}
	return transcripts
}

// FuzzDecode decodes any message. The same bytes as the unescaped text of an error do not
// hide the id of that error.
func FuzzDecode(f *testing.F) {
	for _, messages := range spoken(f) {
		for _, m := range messages {
			f.Add([]byte(m))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decode(transport.Message{Data: data})
		if a := d.answer; d.kind == kindAnswer && a.result == nil && a.err == nil && !a.broken {
			t.Errorf("answer %d is empty", a.id)
		}
		if d.answer.err != nil && len(d.answer.err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(d.answer.err.Error()))
		}
		frame := fmt.Appendf(nil, `{"session_id":"s1","type":"mcp","payload":{"jsonrpc":"2.0","id":7,"error":{"message":"%s"}}}`, data)
		if json.Valid(frame) {
			return // there is nothing to escape
		}
		if d := decode(transport.Message{Data: frame}); d.kind != kindAnswer || d.answer.id != 7 || d.answer.err == nil {
			t.Errorf("%q decoded as %+v", frame, d)
		}
	})
}

// FuzzPage parses any page. The manifest can be bounded and hashed.
func FuzzPage(f *testing.F) {
	for _, messages := range spoken(f) {
		for _, m := range messages {
			if a := decode(transport.Message{Data: []byte(m)}).answer; strings.Contains(string(a.result), `"tools"`) {
				f.Add([]byte(a.result))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p page
		if json.Unmarshal(data, &p) != nil {
			return
		}
		l := listing{manifest: &ferrule.Manifest{}}
		l.add(p.Tools)
		for _, tool := range l.manifest.Tools {
			if len(tool.Input) > 0 && !json.Valid(tool.Input) {
				t.Errorf("the schema became %s", tool.Input)
			}
		}
		l.manifest.Bound()
		if _, err := l.manifest.Kind(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzResult parses any result: there is a valid result or an error.
func FuzzResult(f *testing.F) {
	for _, messages := range spoken(f) {
		for _, m := range messages {
			if a := decode(transport.Message{Data: []byte(m)}).answer; strings.Contains(string(a.result), `"content"`) {
				f.Add([]byte(a.result))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return // decode would have failed
		}
		r, err := result(&ferrule.Call{Device: "d", Tool: "t"}, answer{result: data}, nil)
		if (r == nil) == (err == nil) {
			t.Fatalf("%v and %v", r, err)
		}
		if r == nil {
			return
		}
		if len(r.Value) > 0 && !json.Valid(r.Value) {
			t.Errorf("the value is %s", r.Value)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// FuzzConversation plays a device that sends anything: the greeting and a call end, and
// no goroutine is left.
func FuzzConversation(f *testing.F) {
	for _, messages := range spoken(f) {
		f.Add([]byte(strings.Join(messages, "\n")+"\n"), true)
		f.Add([]byte(strings.Join(messages, "\n")+"\n"), false)
	}
	f.Fuzz(func(t *testing.T, says []byte, ws bool) {
		synctest.Test(t, func(t *testing.T) {
			name := "mqtt"
			if ws {
				name = "ws"
			}
			link, far := transporttest.Pipe(transport.Info{Transport: name})
			defer far.Close()
			go io.Copy(io.Discard, far)
			go far.Write(says)
			d := New(Parts{})
			d.firstID = func() int { return 1 }
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			s, manifest, err := d.Greet(ctx, link)
			if err != nil {
				link.Close()
				return
			}
			manifest.Bound()
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			call, hangUp := context.WithTimeout(ctx, time.Second)
			defer hangUp()
			result, err := s.Invoke(call, &ferrule.Call{Device: "d", Tool: "a"})
			if (result == nil) == (err == nil) {
				t.Errorf("%v and %v", result, err)
			}
			if _, ok := err.(*ferrule.Error); err != nil && !ok {
				t.Errorf("%T: %v", err, err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	})
}
