package check

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
)

// alive reports whether get_info is answered on this connection. If it is not, it records
// that and connects again.
func (b *board) alive(ctx context.Context) (bool, error) {
	r := b.ask(ctx, "get_info", "", infoWait)
	if r.outcome == mangled { // what was left of the last request
		r = b.ask(ctx, "get_info", "", infoWait)
	}
	if r.outcome == answered {
		return true, nil
	}
	return false, b.stopped(ctx, r)
}

// refused records that a request was not understood, if the board answers the next one. A
// board that has stopped answering is another finding.
func (b *board) refused(ctx context.Context, id string, e evidence, format string, args ...any) error {
	ok, err := b.alive(ctx)
	if ok {
		b.find(id, e, format, args...)
	}
	return err
}

// ids tests which IDs are accepted.
func (b *board) ids(ctx context.Context) (string, error) {
	if b.nextID < 1000 {
		b.nextID = 1000
	}
	accepted := 0
	for _, id := range []int{1, math.MaxInt16, math.MaxInt16 + 7234, math.MaxInt32} {
		if id > math.MaxInt16 && (b.info.Profile == "low" || b.info.Profile == "") {
			continue // an int has 16 bits there
		}
		line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"get_info"}`+"\n", id)
		r := b.exchange(ctx, id, infoWait, line)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case r.outcome == answered:
			accepted = max(accepted, id)
		case r.outcome == closed:
			if err := b.stopped(ctx, r); err != nil {
				return "", err
			}
		default:
			if err := b.refused(ctx, "mcpu.short-ids", r.evidence(), "a request with the id %d was not answered", id); err != nil {
				return "", err
			}
		}
	}
	for _, test := range []struct{ id, what string }{{`"x7"`, "a string"}, {"", "missing"}} {
		line := `{"jsonrpc":"2.0","id":` + test.id + `,"method":"get_info"}` + "\n"
		if test.id == "" {
			line = `{"jsonrpc":"2.0","method":"get_info"}` + "\n"
		} else {
			b.textIDs = append(b.textIDs, test.id)
		}
		if err := b.odd(ctx, line, test.id, test.what); err != nil {
			return "", err
		}
	}
	return "up to " + strconv.Itoa(accepted), nil
}

// odd sends get_info with an ID that boards may ignore. An answer with another ID could be
// taken for the answer to another request.
func (b *board) odd(ctx context.Context, line, id, what string) error {
	if err := b.stream.write(line); err != nil {
		return b.stopped(ctx, reply{outcome: closed, sent: line})
	}
	end := time.After(300*time.Millisecond + b.lineTime(infoSize+len(line)))
	for {
		select {
		case got, ok := <-b.stream.in:
			if !ok {
				return b.stopped(ctx, reply{outcome: closed, sent: line})
			}
			var others []answer
			for _, a := range got.answers {
				wrong := a.err == nil && a.idText != id || a.isInt && a.id != 0
				if wrong && b.requests[a.id] == nil && !b.found("mcpu.unknown-id") {
					b.find("mcpu.invented-id", evidence{line, a.raw}, "the id is %s, and the answer has the id %s", what, cutText(a.idText))
				}
				if a.isInt && a.id != 0 && b.requests[a.id] != nil {
					others = append(others, a)
				}
			}
			if got.answers = others; len(others) > 0 {
				b.receive(got)
			}
		case <-end:
			_, err := b.alive(ctx)
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wrongRequest is a request that a board must reject.
type wrongRequest struct {
	method, params string
	what           string
	code           int
}

// errors tests how wrong requests are answered.
func (b *board) errors(ctx context.Context) (string, error) {
	tests := []wrongRequest{{"ferrule_check_no_such_tool", "", "an unknown method", jsonrpc.CodeMethodNotFound}}
	if b.list.tool("gpio_read") != nil {
		tests = append(tests,
			wrongRequest{"gpio_read", "", "gpio_read without a pin", jsonrpc.CodeInvalidParams},
			wrongRequest{"gpio_read", `{"pin":"x"}`, "gpio_read of a pin that is a string", jsonrpc.CodeInvalidParams},
			wrongRequest{"gpio_read", fmt.Sprintf(`{"pin":%d}`, b.freePin()), "gpio_read of a pin that is not in the list", jsonrpc.CodeInvalidParams})
	}
	for _, test := range tests {
		r := b.ask(ctx, test.method, test.params, callWait)
		if err := b.stopped(ctx, r); err != nil {
			return "", err
		}
		switch {
		case r.outcome == mangled:
			b.mangled(r)
		case r.outcome != answered:
		case r.err == nil:
			b.find("mcpu.accepted-error", r.evidence(), "%s was answered with a result", test.what)
		case r.err != nil && r.err.Code != test.code && r.err.Code != jsonrpc.CodeInvalidRequest:
			b.find("mcpu.wrong-code", r.evidence(), "%s was answered with the code %d; it must be %d", test.what, r.err.Code, test.code)
		case r.err != nil && r.err.Code != test.code:
			b.find("mcpu.lost-method", r.evidence(), "%s was answered with the code %d; it must be %d", test.what, r.err.Code, test.code)
		}
		if b.found("mcpu.slow-call") || r.outcome == silent {
			break
		}
	}
	if err := b.malformed(ctx, "a line that is not JSON", "{\"jsonrpc\":\"2.0\",\n"); err != nil {
		return "", err
	}
	id := b.nextID
	b.nextID++
	if err := b.malformed(ctx, "a request without jsonrpc", fmt.Sprintf("{\"id\":%d,\"method\":\"get_info\"}\n", id), id); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d wrong requests", len(tests)+2), nil
}

// malformed sends a line that is not a request. The error may have the ID of the line, if it has
// one.
func (b *board) malformed(ctx context.Context, what, line string, ids ...int) error {
	for _, id := range ids {
		b.requests[id] = &request{sent: line, at: time.Now()}
		defer func() { b.requests[id].ignored = true }()
	}
	if err := b.stream.write(line); err != nil {
		return b.stopped(ctx, reply{outcome: closed, sent: line})
	}
	got := b.collect(ctx, 1500*time.Millisecond+b.lineTime(infoSize), 60*time.Millisecond+b.lineTime(infoSize), ids...)
	ok, err := b.alive(ctx)
	if ok && !slices.ContainsFunc(got, func(a answer) bool { return a.err != nil }) {
		b.find("mcpu.silent-error", evidence{line, ""}, "%s was not answered with an error", what)
	}
	return err
}

// freePin returns a pin number that is not in the list, modulo 256 too.
func (b *board) freePin() int {
	used := make(map[int]bool)
	for _, p := range b.list.pins {
		used[*p.Pin&255] = true
	}
	for n := 250; n > 0; n-- {
		if !used[n] {
			return n
		}
	}
	return 251
}

// fragments tests requests that arrive in parts, with other line ends, or together.
func (b *board) fragments(ctx context.Context) (string, error) {
	tests := []struct {
		id, what string
		cut      func(line string) []string
	}{
		{"mcpu.split-request", "a request that arrived in two parts", func(s string) []string { return []string{s[:20], s[20:]} }},
		{"mcpu.split-request", "a request whose line end came later", func(s string) []string { return []string{s[:len(s)-1], "\n"} }},
		{"mcpu.line-ends", "a request that ends with CR LF", func(s string) []string { return []string{s[:len(s)-1] + "\r\n"} }},
		{"mcpu.line-ends", "a request after empty lines", func(s string) []string { return []string{"\r\n\n" + s} }},
	}
	for _, test := range tests {
		id, line := b.line("get_info", "")
		r := b.exchange(ctx, id, infoWait, test.cut(line)...)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case r.outcome == closed:
			if err := b.stopped(ctx, r); err != nil {
				return "", err
			}
		case r.outcome != answered:
			if err := b.refused(ctx, test.id, r.evidence(), "%s was not understood", test.what); err != nil {
				return "", err
			}
		}
	}
	return "parts, line ends", nil
}

// several tests requests that are sent without waiting for the answer to the one before.
func (b *board) several(ctx context.Context) (string, error) {
	for _, together := range []bool{true, false} {
		var ids []int
		var lines []string
		for range 3 {
			id, line := b.line("get_info", "")
			b.requests[id] = &request{sent: line, at: time.Now()}
			ids, lines = append(ids, id), append(lines, line)
		}
		var err error
		if together {
			lines = lines[:2]
			ids = ids[:2]
			err = b.stream.write(strings.Join(lines, ""))
		} else {
			for _, line := range lines {
				if err == nil {
					err = b.stream.write(line)
				}
			}
		}
		if err != nil {
			return "", b.stopped(ctx, reply{outcome: closed, sent: strings.Join(lines, "")})
		}
		got := b.collect(ctx, infoWait, time.Second+b.lineTime(infoSize), ids...)
		count := 0
		for _, a := range got {
			if !a.mangled() {
				count++
			}
		}
		how := "written one after the other"
		if together {
			how = "in one write"
		}
		ok, err := b.alive(ctx)
		if err != nil {
			return "", err
		}
		if ok && count < len(ids) && (together || b.baud == 0) { // the buffer of a port is small
			b.find("mcpu.lost-request", evidence{strings.Join(lines, ""), ""}, "of %d requests %s, %d were answered", len(ids), how, count)
		}
	}
	return "two in one write, three without waiting", nil
}

// lengths tests requests up to the length that the memory profile promises, and beyond.
func (b *board) lengths(ctx context.Context) (string, error) {
	limit := b.profile.line
	if limit == 0 {
		limit = 1024 // no profile: no limit
	}
	longest := 0
	for _, n := range []int{64, 65, 120, 121, 128, 200, 255, 256, 400, 511, 1024} {
		if n > limit {
			break
		}
		r := b.ask(ctx, "get_info", padding(n, b.nextID), infoWait)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case r.outcome == answered && r.err == nil:
			longest = n
			continue
		case r.outcome == closed:
			if err := b.stopped(ctx, r); err != nil {
				return "", err
			}
			continue
		}
		if err := b.refused(ctx, "mcpu.short-buffer", r.evidence(), "a request of %d bytes was not understood; with the profile %q it may have %d", n, b.info.Profile, limit); err != nil {
			return "", err
		}
		break
	}
	over := max(2*limit, 600)
	line := `{"jsonrpc":"2.0","id":` + strconv.Itoa(b.nextID) + `,"method":"get_info","params":{"x":"` + strings.Repeat("x", over) + "\"}}\n"
	b.requests[b.nextID] = &request{sent: line, at: time.Now(), ignored: true}
	b.nextID++
	if err := b.stream.write(line); err != nil {
		return "", b.stopped(ctx, reply{outcome: closed, sent: line})
	}
	b.collect(ctx, 300*time.Millisecond+b.lineTime(len(line)+infoSize), 100*time.Millisecond+b.lineTime(infoSize))
	r := b.ask(ctx, "get_info", "", infoWait)
	if r.outcome == mangled { // what was left of the line
		r = b.ask(ctx, "get_info", "", infoWait)
	}
	if r.outcome == silent || r.outcome == mangled {
		b.find("mcpu.stuck", evidence{line, string(r.tail)}, "after a line of %d bytes the board did not answer get_info", len(line))
	}
	return fmt.Sprintf("up to %d bytes", longest), b.stopped(ctx, r)
}

// padding returns params that make a get_info with an ID as long as n bytes without its line
// end.
func padding(n, id int) string {
	const head, tail = `{"x":"`, `"}`
	empty := len(jsonrpc.AppendRequest(nil, id, "get_info", []byte(head+tail)))
	return head + strings.Repeat("x", max(0, n-empty)) + tail
}
