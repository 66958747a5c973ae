package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// lineClient writes and reads lines, as a program that runs `ferrule mcp` does.
type lineClient struct {
	t        *testing.T
	requests io.WriteCloser
	lines    chan string
	ended    chan error // holds the error of Serve
}

// onLines serves a client on a pair of streams.
func onLines(t *testing.T, s *Server) *lineClient {
	t.Helper()
	theirs, answers := io.Pipe()
	in, requests := io.Pipe()
	c := &lineClient{t, requests, make(chan string, 100), make(chan error, 1)}
	go func() {
		c.ended <- s.Serve(context.Background(), ferrule.Principal{Role: ferrule.Agent, Name: "lines"}, 0, in, answers)
		answers.Close()
	}()
	go func() {
		defer close(c.lines)
		for scan := bufio.NewScanner(theirs); scan.Scan(); {
			c.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() { requests.Close() })
	return c
}

func (c *lineClient) write(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.requests, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// read returns the next line; "" if the session has ended.
func (c *lineClient) read() string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(wait.Ample):
		c.t.Fatal("there is no line")
		return ""
	}
}

// initialize begins a session, and returns the result.
func (c *lineClient) initialize(version, capabilities string) string {
	c.t.Helper()
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"c","version":"1"}}}`, version, capabilities))
	line := c.read()
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return line
}

// TestBatches: batches are refused from 2025-06-18 on, and answered before.
func TestBatches(t *testing.T) {
	meta := fmt.Sprintf(`{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`, mcphttp.StatelessVersion)
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", mcphttp.StatelessVersion} {
		t.Run(version, func(t *testing.T) {
			s, _ := taskServer(t, newGate().handle, homeTools...)
			c := onLines(t, s)
			one := `{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}`
			if version == mcphttp.StatelessVersion {
				one = `{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"_meta":` + meta + `}}`
			} else if line := c.initialize(version, `{}`); !strings.Contains(line, version) {
				t.Fatalf("got %s", line)
			}
			c.write("[" + fmt.Sprintf(one, 1) + "," + fmt.Sprintf(one, 2) + "]")
			line := c.read()
			if version < "2025-06-18" {
				var answers []json.RawMessage
				if err := json.Unmarshal([]byte(line), &answers); err != nil || len(answers) != 2 {
					t.Errorf("got %s: %v", line, err)
				}
				return
			}
			if line != "" {
				t.Fatalf("got %s", line)
			}
			if err := <-c.ended; err == nil || !strings.Contains(err.Error(), "batch") {
				t.Errorf("ended with %v", err)
			}
		})
	}
}
