package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	agentserver "github.com/ferrulehq/ferrule/internal/agent/server"
)

// floor is the command floor BOARD: the least that a server of MCP can do. A call is decoded,
// makes a raw round trip to the board, and is encoded, without the SDK and without a check. It
// prints its address first. With mcp as an argument it serves on standard input and output.
func floor() {
	conn, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	answer := floorAnswer(newRaw(conn))
	if len(os.Args) > 2 {
		in, out := agentserver.Standard()
		for lines := bufio.NewReader(in); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if data := answer(line); data != nil {
				out.Write(append(data, '\n'))
			}
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer(body))
	}))
}

// floorAnswer returns a function that answers one message; with nil if nothing is to be said.
func floorAnswer(board *raw) func(message []byte) []byte {
	var mu sync.Mutex
	return func(message []byte) []byte {
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Arguments json.RawMessage `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(message, &req); err != nil || req.ID == nil {
			return nil
		}
		if req.Method != "tools/call" {
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"floor","version":"1"}}}`, req.ID, legacy)
		}
		mu.Lock()
		value, err := board.roundTrip("gpio_read", string(req.Params.Arguments))
		mu.Unlock()
		if err != nil {
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%q}}`, req.ID, err.Error())
		}
		text, _ := json.Marshal(string(value))
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"structuredContent":%s,"content":[{"type":"text","text":%s}],"resultType":"complete"}}`, req.ID, value, text)
	}
}
