package xiaozhi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

type none struct{}

type greeting struct {
	Name string `json:"name"`
}

// toy returns the device of the vectors in testdata.
func toy() *xiaozhi.Device {
	d := xiaozhi.New(thing.New("vectors", "1.0.0"))
	thing.Tool(d.Device, "self.lamp.on", "Turn the lamp on", func(context.Context, none) (bool, error) { return true, nil })
	thing.Tool(d.Device, "self.greet", "Greet", func(_ context.Context, in greeting) (string, error) { return "Hello, " + in.Name, nil })
	thing.Tool(d.Device, "self.status", "Tell", func(context.Context, none) (map[string]int, error) { return map[string]int{"volume": 70}, nil })
	thing.Tool(d.Device, "self.screen.snapshot", "Show", func(context.Context, none) (thing.Image, error) {
		return thing.Image{MIME: "image/jpeg", Data: []byte("JPEG")}, nil
	}, thing.UserOnly())
	thing.Tool(d.Device, "self.fail", "Fail", func(context.Context, none) (int, error) { return 0, errors.New(`no "paper"`) })
	thing.Tool(d.Device, "self.panic", "Panic", func(context.Context, none) (int, error) { panic("short circuit") })
	return d
}

// TestVectors replays testdata: > is a message, < its answer. A message without an answer is
// dropped. The gateway's decoder is tested with the same answers.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := toy()
		lines := strings.Split(strings.TrimSpace(string(archive.Files[0].Data)), "\n")
		for i, line := range lines {
			message, ok := strings.CutPrefix(line, "> ")
			if !ok {
				continue
			}
			want := ""
			if i+1 < len(lines) {
				want, _ = strings.CutPrefix(lines[i+1], "< ")
				if strings.HasPrefix(want, "> ") {
					want = ""
				}
			}
			if got := string(d.Answer(t.Context(), []byte(message))); got != want {
				t.Errorf("%s:\n  > %s\ngot  %s\nwant %s", file, message, got, want)
			}
		}
	}
}

// list requests a page.
func list(t *testing.T, d *xiaozhi.Device, params string) (names []string, next, failure string) {
	t.Helper()
	var answer struct {
		Result struct {
			Tools []struct {
				Name        string
				Annotations struct{ Audience []string }
			}
			NextCursor string
		}
		Error struct{ Message string }
	}
	page := d.AnswerRPC(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`))
	if err := json.Unmarshal(page, &answer); err != nil {
		t.Fatal(err)
	}
	if len(page) > 8100 {
		t.Errorf("page of %d bytes", len(page))
	}
	for _, tool := range answer.Result.Tools {
		name := tool.Name
		if slices.Equal(tool.Annotations.Audience, []string{"user"}) {
			name += "!"
		}
		names = append(names, name)
	}
	return names, answer.Result.NextCursor, answer.Error.Message
}

func TestList(t *testing.T) {
	d := xiaozhi.New(thing.New("d", "1"))
	if names, next, failure := list(t, d, `{}`); names != nil || next != "" || failure != "" {
		t.Errorf("a device without tools lists %v, %q, %q", names, next, failure)
	}
	nothing := func(context.Context, none) (int, error) { return 0, nil }
	thing.Tool(d.Device, "reboot", "", nothing, thing.UserOnly())
	if _, _, failure := list(t, d, `{}`); failure != "Failed to add tool  because of payload size limit" {
		t.Errorf("only tools for people: %q", failure)
	}
	if names, _, _ := list(t, d, `{"withUserTools":true}`); !slices.Equal(names, []string{"reboot!"}) {
		t.Errorf("got %v", names)
	}
	for n := range 6 {
		thing.Tool(d.Device, fmt.Sprintf("t%d", n), strings.Repeat("x", 3000), nothing)
	}
	thing.Tool(d.Device, "huge", strings.Repeat("x", 8000), nothing)
	thing.Tool(d.Device, "behind", "", nothing)
	for _, test := range []struct{ params, names, next, failure string }{
		{`{}`, "t0 t1", "t2", ""},
		{`{"cursor":"t2"}`, "t2 t3", "t4", ""},
		{`{"cursor":"","withUserTools":true}`, "reboot! t0 t1", "t2", ""},
		{`{"cursor":"t4"}`, "t4 t5", "huge", ""},
		{`{"cursor":"huge"}`, "", "", "Failed to add tool huge because of payload size limit"},
		{`{"cursor":"behind"}`, "behind", "", ""},
		{`{"cursor":"gone"}`, "", "", "Failed to add tool  because of payload size limit"},
	} {
		names, next, failure := list(t, d, test.params)
		if got := strings.Join(names, " "); got != test.names || next != test.next || failure != test.failure {
			t.Errorf("%s: %s, %q, %q", test.params, got, next, failure)
		}
	}
}

// TestServe checks hello, an answer, and the end of the connection.
func TestServe(t *testing.T) {
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- toy().Serve(t.Context(), xiaozhi.Lines(far), true) }()
	conn := xiaozhi.Lines(near)
	hello, err := conn.Recv(t.Context())
	if err != nil || !strings.Contains(string(hello.Data), `"transport":"websocket"`) || !strings.Contains(string(hello.Data), `"mcp":true`) {
		t.Errorf("%s, %v", hello.Data, err)
	}
	if _, err := io.WriteString(near, strings.Repeat("x", 100<<10)+"\n"); err != nil {
		t.Fatal(err)
	}
	conn.Send(t.Context(), xiaozhi.Message{Data: []byte(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":7,"method":"ping"}}`)})
	if m, err := conn.Recv(t.Context()); err != nil || !strings.Contains(string(m.Data), `"id":7,"error"`) {
		t.Errorf("%s, %v", m.Data, err)
	}
	near.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestExplain checks that an image is sent to the endpoint of initialize.
func TestExplain(t *testing.T) {
	d := toy()
	who := xiaozhi.Identity{DeviceID: "98:a3:16:f9:d9:34", ClientID: "7b94d69a"}
	if _, err := d.Explain(t.Context(), who, "?", nil); err == nil || !strings.Contains(err.Error(), "is not set") {
		t.Errorf("got %v", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, header, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		data, _ := io.ReadAll(file)
		fmt.Fprintf(w, "%s %s %s %s %v %s %s %s", r.Header.Get("Device-Id"), r.Header.Get("Client-Id"), r.Header.Get("Authorization"),
			r.Header.Get("Content-Type"), r.TransferEncoding, r.FormValue("question"), header.Header.Get("Content-Type"), data)
	}))
	defer server.Close()
	d.Answer(t.Context(), fmt.Appendf(nil, `{"type":"mcp","payload":{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"vision":{"url":"%s","token":"tok"}}}}}`, server.URL))
	got, err := d.Explain(t.Context(), who, "What is it?", []byte("JPEG"))
	want := "98:a3:16:f9:d9:34 7b94d69a Bearer tok multipart/form-data; boundary=----ESP32_CAMERA_BOUNDARY [chunked] What is it? image/jpeg JPEG"
	if got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// FuzzAnswer checks that the answer to any message is JSON.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"self.greet","arguments":{"name":"x"}}}}`))
	f.Add([]byte(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"self.fail","withUserTools":true}}}`))
	f.Add([]byte(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":1e99,"method":"initialize","params":{"capabilities":{"vision":5}}}}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		if got := toy().Answer(context.Background(), message); got != nil && !json.Valid(got) {
			t.Errorf("got %q", got)
		}
	})
}
