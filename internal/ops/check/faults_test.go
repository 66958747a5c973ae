package check_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// boardFault is one fault of a board, or something that is not a fault.
type boardFault struct {
	also    []string // findings that follow from the fault
	actuate bool
	past    time.Duration // for which the board took samples before the check
	// request changes a request; an empty one is lost.
	request func(c *faultyConn, request string) string
	// answer changes an answer. It is empty if there is none.
	answer func(request, answer string) string
	// connect is called when a client connects.
	connect func(c *faultyConn)
}

// faultyConn is a connection of a board.
type faultyConn struct {
	net.Conn
	in     *bufio.Reader
	number int // of the connections of the board, from 1
	count  int // of the requests, from 1
	last   *faultyConn
	stuck  bool
}

// boardFaults are named after the finding.
var boardFaults = map[string]boardFault{
	"mcpu.sampling-interval": replace(`"sampling":{"interval_ms":500`, `"sampling":{"interval_ms":200`),
	"mcpu.wrong-summary":     replace(`"avg":`, `"avg":-1`),
	"mcpu.wrong-event":       replace(`"events":[]`, `"events":[{"type":"threshold_high","value":1,"threshold":5}]`),
	"mcpu.wrong-result":      replace(`"name":"led","value":false`, `"name":"led","value":0`),
	"mcpu.bad-info":          replace(`"platform":"arduino",`, ``),
	"mcpu.unknown-profile":   replace(`"memory_profile":"rich"`, `"memory_profile":"huge"`),
	"mcpu.accepted-error":    replace(`"error":{"code":-32601,"message":"Method not found"}`, `"result":{}`),
	"mcpu.wrong-code":        replace(`-32601`, `-1`),
	"mcpu.refused-call":      replace(`{"result":{"pin":2,"name":"led","value":false},`, `{"error":{"code":-32602,"message":"Wrong pin type"},`),
	"mcpu.bad-json":          replace(`"name":"led","value"`, `"name":"l"ed","value"`),
	"mcpu.bad-pin":           replace(`"type":"pwm_output"`, `"type":"motor"`),
	"mcpu.bad-polling":       replace(`"interval_ms":5000`, `"interval_ms":0`),
	"mcpu.no-list":           replace(`"tools":[`, `"tool":[`),
	"mcpu.silent-error": {answer: func(_, answer string) string {
		if strings.Contains(answer, "-32700") {
			return ""
		}
		return answer
	}},
	"mcpu.invented-id": {answer: func(request, answer string) string {
		if strings.Contains(request, "get_info") && !strings.Contains(request, `"id"`) {
			return `{"result":{},"jsonrpc":"2.0","id":5555}` + "\r\n"
		}
		return answer
	}},
	"mcpu.line-ends": {answer: func(request, answer string) string {
		if strings.HasSuffix(request, "\r\n") {
			return `{"jsonrpc":"2.0","id":0,"error":{"code":-32700,"message":"Parse error"}}` + "\r\n"
		}
		return answer
	}},
	"mcpu.changing-info": {answer: func(request, answer string) string {
		if !strings.Contains(request, "get_info") {
			return answer
		}
		return strings.Replace(answer, `"version":"1.0.0"`, fmt.Sprintf(`"version":"%d"`, time.Now().UnixNano()), 1)
	}},
	"mcpu.slow-poll": {answer: func(request, answer string) string {
		if strings.Contains(request, "read_climate") {
			time.Sleep(5 * time.Millisecond)
		}
		return strings.Replace(answer, `"interval_ms":5000`, `"interval_ms":1`, 1)
	}},
	"mcpu.slow-answers": {answer: func(request, answer string) string {
		if strings.Contains(request, "get_info") {
			time.Sleep(350 * time.Millisecond)
		}
		return answer
	}},
	"mcpu.long-answer": {answer: func(request, answer string) string {
		if !strings.Contains(request, "read_climate") {
			return answer
		}
		return strings.Replace(answer, `{"result":{`, `{"result":{"x":"`+strings.Repeat("x", 70<<10)+`",`, 1)
	}},
	"mcpu.failed-call": {actuate: true, answer: func(request, answer string) string {
		if strings.Contains(request, "_write") {
			return strings.Replace(answer, `{"result":{`, `{"error":{"code":-32000,"message":"no power"},"was":{`, 1)
		}
		return answer
	}},
	"mcpu.write-not-seen": {actuate: true, answer: func(request, answer string) string {
		if strings.Contains(request, "gpio_read") {
			return strings.Replace(answer, `"value":true`, `"value":false`, 1)
		}
		return answer
	}},
	"mcpu.deaf-start": {request: func(c *faultyConn, request string) string {
		if c.count == 1 {
			return ""
		}
		return request
	}},
	"mcpu.slow-start": {connect: func(c *faultyConn) {
		if c.number == 2 {
			time.Sleep(5200 * time.Millisecond)
		}
	}},
	"mcpu.no-reconnect": {connect: func(c *faultyConn) { c.stuck = c.number > 1 }},
	"mcpu.second-client": {also: []string{"mcpu.closed-connection"}, connect: func(c *faultyConn) {
		if c.last != nil {
			c.last.Close()
		}
	}},
	"mcpu.lost-request": {request: func(c *faultyConn, request string) string {
		if strings.TrimSpace(request) != "" {
			c.in.Discard(c.in.Buffered()) // cannot fail
		}
		return request
	}},
	"mcpu.stuck": {also: []string{"mcpu.stopped-answering"}, request: func(c *faultyConn, request string) string {
		c.stuck = c.stuck || len(request) > 600
		return request
	}},
}

// goodBoards are unusual and not faults.
var goodBoards = map[string]boardFault{
	"returns ten of many samples": {past: 20 * time.Second, request: func(_ *faultyConn, request string) string {
		return strings.Replace(request, `"get_pin_buffer","params":{`, `"get_pin_buffer","params":{"limit":10,`, 1)
	}},
	"returns the id of a request without jsonrpc": {answer: func(request, answer string) string {
		if id, _, ok := strings.Cut(strings.TrimPrefix(request, `{"id":`), ","); ok && strings.HasPrefix(request, `{"id":`) {
			return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32600,"message":"Invalid request"}}` + "\r\n"
		}
		return answer
	}},
	"answers a string as id late": {answer: func(request, answer string) string {
		if strings.Contains(request, `"id":"x7"`) {
			time.Sleep(400 * time.Millisecond)
			return `{"result":{},"jsonrpc":"2.0","id":"x7"}` + "\r\n"
		}
		return answer
	}},
	"has a long name and text": replace(`"name":"sweep","description":"`, `"name":"sweep `+strings.Repeat("x", 100)+`","description":"`+strings.Repeat("Sweep. ", 400)),
}

// replace returns a fault that changes a text in answers.
func replace(old, by string) boardFault {
	return boardFault{answer: func(_, answer string) string { return strings.ReplaceAll(answer, old, by) }}
}

// serveFaulty runs a board with a fault until the test ends, and returns its address.
func serveFaulty(t *testing.T, f boardFault) string {
	return serve(t, func(ctx context.Context, ln net.Listener) error {
		board := sim.NewBoard()
		for now := time.Now(); f.past > 0; f.past -= 500 * time.Millisecond {
			board.Tick(now.Add(-f.past))
		}
		go tick(ctx, board)
		var mu sync.Mutex
		var last *faultyConn
		return accept(ctx, ln, func(ctx context.Context, conn net.Conn) {
			mu.Lock()
			c := &faultyConn{Conn: conn, in: bufio.NewReaderSize(conn, 4096), number: 1, last: last}
			if last != nil {
				c.number = last.number + 1
			}
			last = c
			mu.Unlock()
			if f.connect != nil {
				f.connect(c)
			}
			f.serve(ctx, c, board)
		})
	})
}

// serve answers requests until the connection ends.
func (f boardFault) serve(ctx context.Context, c *faultyConn, board *sim.Board) {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return
		}
		if c.count++; f.request != nil {
			line = f.request(c, line)
		}
		if line == "" || c.stuck {
			continue
		}
		answer := string(board.Answer(ctx, []byte(line)))
		if f.answer != nil {
			answer = f.answer(line, answer)
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// TestBoardFaults checks that single faults of a board are found by their IDs, and that nothing
// else is found.
func TestBoardFaults(t *testing.T) {
	slow(t)
	t.Parallel()
	faults := maps.Clone(boardFaults)
	maps.Copy(faults, goodBoards)
	names := slices.Collect(maps.Keys(faults))
	reports := checkAll(t, names, func(name string) (*check.Report, error) {
		f := faults[name]
		return check.Run(t.Context(), target(t, serveFaulty(t, f)), check.Options{Actuate: f.actuate})
	})
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			var want []string
			if f, ok := boardFaults[name]; ok {
				want = append(f.also, name)
			}
			harmless := readers
			if faults[name].actuate {
				harmless = append([]string{"gpio_write", "pwm_write"}, readers...)
			}
			judgeExact(t, reports[name], want, harmless)
			if reports[name].Actuated != faults[name].actuate {
				t.Errorf("actuated is %t", reports[name].Actuated)
			}
		})
	}
}

// TestChangingList checks that the finding compares both lists.
func TestChangingList(t *testing.T) {
	slow(t)
	t.Parallel()
	var lists atomic.Int32
	addr := serveFaulty(t, boardFault{answer: func(request, answer string) string {
		if strings.Contains(request, "list_tools") {
			if lists.Add(1) == 1 {
				return strings.Replace(answer, "On-board LED", "LED", 1)
			}
		}
		return answer
	}})
	report := run(t, addr)
	judgeExact(t, report, []string{"mcpu.changing-list"}, readers)
	var first, second int
	if _, err := fmt.Sscanf(report.Findings[0].Detail, "two lists of one connection differ: %d and %d bytes", &first, &second); err != nil || second != first+len("On-board ") {
		t.Errorf("the detail is %q, %v", report.Findings[0].Detail, err)
	}
}

// TestRestore checks that a check which is interrupted sets an output back, soon, even if the
// board does not answer anymore.
func TestRestore(t *testing.T) {
	slow(t)
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var written []string
	addr := serveFaulty(t, boardFault{answer: func(request, answer string) string {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(request, "gpio_write") {
			written = append(written, strings.TrimSpace(request))
			cancel()
		}
		if len(written) > 0 {
			return ""
		}
		return answer
	}})
	began := time.Now()
	_, err := check.Run(ctx, target(t, addr), check.Options{Actuate: true, OnStep: func(_, _ int, s check.Step) {
		if s.Name == "actuators" && s.State == check.Running {
			began = time.Now()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	figure.AtMost(t, "until a check has restored an output", time.Since(began), 15*time.Second)
	mu.Lock()
	defer mu.Unlock()
	if len(written) != 2 || !strings.Contains(written[0], `"value":true`) || !strings.Contains(written[1], `"value":false`) {
		t.Errorf("the board received %q", written)
	}
}

// TestRestoreConnection checks that an output is set back although the connection ends: while it
// is inverted, so that the check gives up, or while it is set back.
func TestRestoreConnection(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, test := range map[string]struct {
		value string // of the command that ends the connection
		runs  bool   // although the connection ends
		bad   int    // how many connections after it end at once
		want  []string
	}{
		"gives up":       {`"value":true`, true, 1, []string{"mcpu.closed-connection", "mcpu.no-reconnect"}},
		"never comes":    {`"value":true`, true, 1000, []string{"mcpu.closed-connection", "mcpu.no-reconnect", "mcpu.write-not-seen"}},
		"restoring ends": {`"value":false`, false, 0, []string{"mcpu.closed-connection"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var written []string
			ended := 0 // the connection that a command has ended
			addr := serveFaulty(t, boardFault{
				connect: func(c *faultyConn) {
					mu.Lock()
					defer mu.Unlock()
					if ended > 0 && c.number <= ended+test.bad {
						c.Close()
					}
				},
				request: func(c *faultyConn, request string) string {
					mu.Lock()
					defer mu.Unlock()
					if !strings.Contains(request, "gpio_write") {
						return request
					}
					if ended == 0 && strings.Contains(request, test.value) {
						ended = c.number
						c.Close()
						if !test.runs {
							return ""
						}
					}
					written = append(written, strings.TrimSpace(request))
					return request
				},
			})
			report, err := check.Run(t.Context(), target(t, addr), check.Options{Actuate: true})
			if err != nil {
				t.Fatal(err)
			}
			judgeExact(t, report, test.want, append([]string{"gpio_write", "pwm_write"}, readers...))
			mu.Lock()
			defer mu.Unlock()
			restored := len(written) > 1 && strings.Contains(written[1], `"value":false`)
			if len(written) == 0 || !strings.Contains(written[0], `"value":true`) || restored != (test.bad < 1000) {
				t.Errorf("the board received %q", written)
			}
		})
	}
}

// tick takes samples until ctx ends.
func tick(ctx context.Context, board *sim.Board) {
	for ctx.Err() == nil {
		board.Tick(time.Now())
		time.Sleep(50 * time.Millisecond)
	}
}
