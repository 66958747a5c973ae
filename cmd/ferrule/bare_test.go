package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	agentserver "github.com/ferrulehq/ferrule/internal/agent/server"
)

// What the gateway is measured against: the same without the gateway.

// raw is a bare connection to a board: it sends a request and decodes the answer, and
// nothing else.
type raw struct {
	out io.Writer
	in  *bufio.Reader
	id  int
}

func newRaw(conn io.ReadWriter) *raw { return &raw{out: conn, in: bufio.NewReader(conn)} }

// roundTrip sends one request and reads its answer.
func (r *raw) roundTrip(method, params string) (json.RawMessage, error) {
	r.id = r.id%32767 + 1
	if _, err := fmt.Fprintf(r.out, `{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`+"\n", r.id, method, params); err != nil {
		return nil, err
	}
	line, err := r.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	var answer struct {
		ID     int             `json:"id"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(line, &answer); err != nil || answer.ID != r.id || answer.Result == nil {
		return nil, fmt.Errorf("%s: %v", line, err)
	}
	return answer.Result, nil
}

// bare is the command bare BOARD: an MCP server with the SDK alone, for both versions of
// MCP, with one tool that makes a raw round trip to a board. It prints its address
// first, and answers like weighed. With mcp as an argument it serves on standard input
// and output.
func bare() {
	conn, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var mu sync.Mutex
	board := newRaw(conn)
	server := mcp.NewServer(&mcp.Implementation{Name: "bare"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	server.AddTool(&mcp.Tool{Name: "gpio_read", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			mu.Lock()
			defer mu.Unlock()
			value, err := board.roundTrip("gpio_read", string(req.Params.Arguments))
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{StructuredContent: value, Content: []mcp.Content{&mcp.TextContent{Text: string(value)}}}, nil
		})
	if len(os.Args) > 2 {
		in, out := agentserver.Standard()
		server.Run(context.Background(), &mcp.IOTransport{Reader: in, Writer: out})
		return
	}
	get := func(*http.Request) *mcp.Server { return server }
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	stateful := mcp.NewStreamableHTTPHandler(get, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	go weigh()
	http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= modern {
			stateless.ServeHTTP(w, r)
			return
		}
		stateful.ServeHTTP(w, r)
	}))
}

// weighed is the command ferrule that also reports its memory on request.
func weighed() {
	go weigh()
	main()
}

// weigh answers each line of standard input with the memory of this process.
func weigh() {
	in, out := agentserver.Standard()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		for range 4 {
			runtime.GC() // each halves stacks that are too large
		}
		memory, err := residentMemory()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Fprintln(out, memory)
	}
}

// residentMemory returns the memory of this process after a garbage collection.
func residentMemory() (int, error) {
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb << 10, nil
		}
	}
	return 0, errors.New("there is no VmRSS")
}
