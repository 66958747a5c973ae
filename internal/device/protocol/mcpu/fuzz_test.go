package mcpu

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// spoken returns what the boards in testdata/transcripts send, write by write, for
// each transcript.
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
		var pieces []string
		for line := range strings.Lines(section(f, archive, "script")) {
			switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "board":
				pieces = append(pieces, greetingAnswers(f, rest, 1)...)
			case "<":
				pieces = append(pieces, rest+"\r\n")
			case "<<":
				text, err := strconv.Unquote(rest)
				if err != nil {
					f.Fatal(err)
				}
				pieces = append(pieces, text)
			}
		}
		transcripts = append(transcripts, pieces)
	}
	return transcripts
}

// FuzzScan scans any line. An answer is found whatever is around it, unless that looks
// like the start of an object.
func FuzzScan(f *testing.F) {
	for _, pieces := range spoken(f) {
		for _, piece := range pieces {
			f.Add([]byte(strings.TrimRight(piece, "\r\n")))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, a := range scan(line) {
			if a.empty() && !bytes.Contains(line, []byte("2.0")) && !bytes.Contains(line, []byte(`\`)) {
				t.Errorf("noise is answer %d", a.id)
			}
			if a.err != nil && len(a.err.Error()) > 300 {
				t.Errorf("an error of %d bytes", len(a.err.Error()))
			}
		}
		if usual, ok := usualAnswer(line); ok {
			if a, ok := parseAnswer(line); !ok || a.id != usual.id || !bytes.Equal(bytes.TrimSpace(a.result), bytes.TrimSpace(usual.result)) {
				t.Errorf("%q decoded as %+v and as %+v", line, usual, a)
			}
		}
		if bytes.ContainsAny(line, `{"[`) {
			return
		}
		glued := fmt.Appendf(nil, `%s{"result":{"pin":2},"jsonrpc":"2.0","id":7}%s`, line, line)
		if found := scan(glued); len(found) != 1 || found[0].id != 7 || string(found[0].result) != `{"pin":2}` {
			t.Errorf("found in %q: %+v", glued, found)
		}
	})
}

// TestScanIsBounded: an expensive line costs little more than reading it a few times. Each
// attempt to parse an object copies what it reads, so the memory shows the cost.
func TestScanIsBounded(t *testing.T) {
	const size = 256 << 10
	cost := func(unit string) (bytes uint64) {
		line := []byte(`"id" ` + strings.Repeat(unit, size/len(unit)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		scan(line)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	var longest time.Duration
	for _, unit := range []string{`{"a":`, `{"`, `{"a":[`, `{ `, `{"a":"{`, `{"a":1}`} {
		start := time.Now()
		if memory := cost(unit); memory > 64*size {
			t.Errorf("a line of %q takes %d KB", unit, memory>>10)
		}
		longest = max(longest, time.Since(start))
	}
	figure.AtMost(t, "the most expensive line", longest, 2*time.Second)
}

// FuzzList parses any list. The manifest can be bounded, hashed and marshaled.
func FuzzList(f *testing.F) {
	for _, pieces := range spoken(f) {
		for _, piece := range pieces {
			for _, a := range scan([]byte(piece)) {
				if bytes.Contains(a.result, []byte(`"tools"`)) {
					f.Add([]byte(a.result))
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		count := 3
		m, _, err := parseList(info{Device: "d", PinCount: &count, Profile: "rich"}, data)
		if err != nil {
			return
		}
		m.Bound()
		if _, err := m.Kind(); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}

// FuzzConversation plays a board that sends anything: the greeting and a call end, and
// no goroutine is left.
func FuzzConversation(f *testing.F) {
	for _, pieces := range spoken(f) {
		f.Add([]byte(strings.Join(pieces, "")))
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		synctest.Test(t, func(t *testing.T) {
			link, far := transporttest.Pipe(transport.Info{})
			defer far.Close()
			go io.Copy(io.Discard, far)
			go far.Write(says)
			d := New()
			d.firstID = func() int { return 1 }
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			session, manifest, err := d.Greet(ctx, link)
			if err != nil {
				link.Close()
				return
			}
			manifest.Bound()
			ended := make(chan error, 1)
			go func() { ended <- session.Run(ctx) }()
			call, hangUp := context.WithTimeout(ctx, time.Second)
			defer hangUp()
			result, err := session.Invoke(call, &ferrule.Call{Device: "d", Tool: "a"})
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
