// Package mcpmqtt runs clients and servers that are made with EMQX's SDK for MCP over
// MQTT, for tests.
package mcpmqtt

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Peer is a running client or server.
type Peer struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	said *bufio.Scanner
}

// Client runs a client that connects to a server by its name, at a broker.
func Client(t testing.TB, broker, server string) *Peer {
	t.Helper()
	return start(t, "client", broker, server)
}

// Server runs a server with the tool add, at a broker.
func Server(t testing.TB, broker, id, name string) *Peer {
	t.Helper()
	return start(t, "server", broker, id, name)
}

// start runs peer.py until the test ends. It skips the test if the SDK is not installed.
func start(t testing.TB, role, broker string, args ...string) *Peer {
	t.Helper()
	dir := os.Getenv("FERRULE_TEST_MCPMQTT")
	if dir == "" {
		t.Skip("FERRULE_TEST_MCPMQTT is not set: see internal/testenv/mcpmqtt")
	}
	_, port, err := net.SplitHostPort(broker)
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{t: t, cmd: exec.Command(filepath.Join(dir, "bin", "python3"), append([]string{filepath.Join(dir, "peer.py"), role, port}, args...)...)}
	p.cmd.Stderr = t.Output()
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.said = bufio.NewScanner(out)
	p.said.Buffer(nil, 16<<20)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// Next decodes the next line that it prints.
func (p *Peer) Next(v any) {
	p.t.Helper()
	if !p.said.Scan() {
		p.t.Fatalf("it has ended: %v", p.said.Err())
	}
	if err := json.Unmarshal(p.said.Bytes(), v); err != nil {
		p.t.Fatalf("%s: %v", p.said.Bytes(), err)
	}
}

// Call lets a client call a tool, and returns the text of the result.
func (p *Peer) Call(tool, args string) (text string, isError bool) {
	p.t.Helper()
	fmt.Fprintf(p.in, `{"name":%q,"arguments":%s}`+"\n", tool, args)
	var result struct {
		Error bool
		Text  string
	}
	p.Next(&result)
	return result.Text, result.Error
}

// Leave lets it end in order.
func (p *Peer) Leave() { p.in.Close() }

// Kill ends it at once. It may be called more than once.
func (p *Peer) Kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait() // the error is the kill
}
