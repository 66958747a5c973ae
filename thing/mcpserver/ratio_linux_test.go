//go:build bench

package mcpserver_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// servant is the environment variable that makes this test binary a server.
const servant = "FERRULE_TEST_SERVANT"

func TestMain(m *testing.M) {
	switch os.Getenv(servant) {
	case "thing":
		serveFor(func(ctx context.Context, ln net.Listener) error { return twenty().Serve(ctx, ln) })
	case "bare":
		serveFor(func(_ context.Context, ln net.Listener) error { return http.Serve(ln, bare()) })
	default:
		os.Exit(m.Run())
	}
}

// serveFor serves, and answers each line of standard input with its memory use.
func serveFor(serve func(context.Context, net.Listener) error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("http://%s/mcp\n", ln.Addr())
	go func() { panic(serve(context.Background(), ln)) }()
	if err := syscall.SetNonblock(0, true); err != nil { // a blocking read can stall the process
		panic(err)
	}
	for lines := bufio.NewScanner(os.NewFile(0, "standard input")); lines.Scan(); {
		debug.FreeOSMemory()
		fmt.Println(field("/proc/self/status", "VmRSS:"))
	}
}

// field returns a number from a file in /proc.
func field(file, name string) int {
	data, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				panic(err)
			}
			return n
		}
	}
	panic(name + " is not in " + file)
}

// tools is the number of tools of both servers.
const tools = 20

func read(_ context.Context, in reading) (moved, error) { return moved{in.Pin}, nil }

// twenty returns a device with that many tools.
func twenty() *mcpserver.Device {
	d := thing.New("twenty", "1")
	for i := range tools {
		thing.Tool(d, fmt.Sprintf("read_%d", i), "Read a pin", read, thing.Reads())
	}
	return mcpserver.New(d, mcpserver.Config{})
}

// bare returns a server of the bare SDK with the same tools.
func bare() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	for i := range tools {
		mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprintf("read_%d", i), Description: "Read a pin", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
			func(ctx context.Context, _ *mcp.CallToolRequest, in reading) (*mcp.CallToolResult, moved, error) {
				out, err := read(ctx, in)
				return nil, out, err
			})
	}
	get := func(*http.Request) *mcp.Server { return server }
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	stateful := mcp.NewStreamableHTTPHandler(get, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= versions[1] {
			stateless.ServeHTTP(w, r)
			return
		}
		stateful.ServeHTTP(w, r)
	})
}

// process is a server in its own process.
type process struct {
	t   *testing.T
	url string
	pid int
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, kind string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), servant+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	p := &process{t: t, pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	p.url = p.line()
	return p
}

func (p *process) line() string {
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// memory returns the resident set in KB after a garbage collection.
func (p *process) memory() int {
	fmt.Fprintln(p.in)
	kb, err := strconv.Atoi(p.line())
	if err != nil {
		p.t.Fatal(err)
	}
	return kb
}

// ticks returns the CPU time that it has used, in 1/100 s.
func (p *process) ticks() int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	words := strings.Fields(string(data)[strings.LastIndex(string(data), ")"):])
	user, err1 := strconv.Atoi(words[12])
	system, err2 := strconv.Atoi(words[13])
	if err := cmp.Or(err1, err2); err != nil {
		p.t.Fatal(err)
	}
	return user + system
}

// plain is a minimal client.
type plain struct {
	t                     *testing.T
	url, version, session string
}

func newPlain(t *testing.T, url, version string) *plain {
	p := &plain{t: t, url: url, version: version}
	if version == versions[0] {
		p.send("initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"plain","version":"1"},"capabilities":{}}}`)
		p.send("notifications/initialized", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return p
}

// call calls one of the tools.
func (p *plain) call(n int) {
	meta := ""
	if p.version == versions[1] {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	}
	answer := p.send("tools/call", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_%d","arguments":{"pin":%d}%s}}`, n+2, n%tools, n, meta))
	if !strings.Contains(answer, fmt.Sprintf(`"structuredContent":{"position":%d}`, n)) {
		p.t.Fatalf("got %s", answer)
	}
}

func (p *plain) send(method, body string) string {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", p.version)
	if p.session != "" {
		req.Header.Set("Mcp-Session-Id", p.session)
	}
	if p.version == versions[1] {
		req.Header.Set("Mcp-Method", method)
		_, name, _ := strings.Cut(body, `"name":"`)
		name, _, _ = strings.Cut(name, `"`)
		req.Header.Set("Mcp-Name", name)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		p.t.Fatalf("%s: %s, %v", resp.Status, answer, err)
	}
	p.session = cmp.Or(p.session, resp.Header.Get("Mcp-Session-Id"))
	return string(answer)
}

// load makes 1,000 calls per second, and returns the CPU time of the server in 1/100 s.
func load(t *testing.T, p *process, version string, seconds int) int {
	t.Helper()
	caller := newPlain(t, p.url, version)
	before, begin := p.ticks(), time.Now()
	for n := range seconds * 1000 {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Millisecond)))
		caller.call(n)
	}
	if took := time.Since(begin); took > time.Duration(seconds)*1200*time.Millisecond {
		t.Logf("the machine was too slow: %d calls took %v", seconds*1000, took)
	}
	return p.ticks() - before
}

// TestRatioThing compares a device with a server of the bare SDK that has the same
// tools: memory when idle and after many calls, and CPU time at 1,000 calls per second.
func TestRatioThing(t *testing.T) {
	const seconds, rounds = 3, 5
	got, base := make(map[string][]int), make(map[string][]int)
	for range rounds {
		device, server := start(t, "thing"), start(t, "bare")
		const idle = "memory when idle, KB"
		got[idle], base[idle] = append(got[idle], device.memory()), append(base[idle], server.memory())
		for _, version := range versions {
			load(t, device, version, 1) // to warm up
			load(t, server, version, 1)
			cpu := version + ": CPU time at 1000 calls/s in 1/100 s, over seconds: " + strconv.Itoa(seconds)
			got[cpu], base[cpu] = append(got[cpu], load(t, device, version, seconds)), append(base[cpu], load(t, server, version, seconds))
			after := version + ": memory after calls, KB"
			got[after], base[after] = append(got[after], device.memory()), append(base[after], server.memory())
		}
	}
	for name := range got {
		checkRatio(t, name, got[name], base[name], 1.2)
	}
}

// checkRatio checks the median ratio of got to base, which were measured in pairs.
func checkRatio(t *testing.T, name string, got, base []int, limit float64) {
	t.Helper()
	var ratios []float64
	for i := range got {
		ratios = append(ratios, float64(got[i])/float64(base[i]))
	}
	slices.Sort(ratios)
	slices.Sort(got)
	slices.Sort(base)
	ratio := ratios[len(ratios)/2]
	t.Logf("%s: %d against %d, ratio %.2f (%.2f to %.2f), limit %.2f",
		name, got[len(got)/2], base[len(base)/2], ratio, ratios[0], ratios[len(ratios)-1], limit)
	if ratio > limit {
		t.Errorf("%s: ratio %.2f, limit is %.2f", name, ratio, limit)
	}
}
