package check

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// board is the check of an MCP/U board.
type board struct {
	*run
	open func(ctx context.Context) (transport.Conn, error)
	baud int // of a serial line; 0 for TCP

	stream    *stream
	nextID    int
	requests  map[int]*request // by ID
	textIDs   []string         // that were sent and are not integers
	broken    int              // connections that ended by themselves
	greeted   bool             // on this connection
	greetings int
	bootText  string // what the board printed before it answered for the first time

	info    info
	profile profile
	list    list
	samples []*sampled
	slow    int // calls

	noiseBytes, noiseLines int // that were no answers, on earlier connections
	linesJudged            bool
}

// request is a request that was sent.
type request struct {
	sent    string
	at      time.Time
	answers int
	given   bool // nobody waits for its answer anymore
	ignored bool // its answer may come or not
}

// profile is the limits of a memory profile.
type profile struct {
	line  int // length of the longest request
	pins  int
	tools int // in addition to the built-in ones
}

var profiles = map[string]profile{
	"rich":         {511, 16, 24},
	"conservative": {255, 8, 8},
	"low":          {255, 8, 8},
}

// checkMCPU tests a board on a serial port or on TCP.
func checkMCPU(ctx context.Context, target Target, o Options) (*Report, error) {
	b := &board{run: newRun(target, "mcpu", mcpuRules, o), nextID: 101, requests: make(map[int]*request)}
	b.open = func(ctx context.Context) (transport.Conn, error) { return dialTCP(ctx, target.text) }
	if target.kind == "serial" {
		b.baud = cmp.Or(o.Baud, serial.DefaultBaud)
		b.open = func(context.Context) (transport.Conn, error) { return openSerial(target.text, b.baud) }
	}
	conn, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	b.stream = newStream(conn)
	defer func() { b.stream.close() }()
	steps := []step{
		{"identity", b.identity}, {"list", b.tools}, {"names", b.names}, {"schemas", b.schemas}, {"pins", b.pins}, {"calls", b.calls},
		{"ids", b.ids}, {"errors", b.errors}, {"requests", b.fragments}, {"several requests", b.several}, {"long requests", b.lengths},
		{"speed", b.speed}, {"sampling", b.sampling}, {"actuators", b.actuate}, {"reconnect", b.reconnect}, {"lines", b.lines},
	}
	if err := b.steps(ctx, steps); err != nil {
		return nil, err
	}
	if !b.linesJudged {
		b.judgeLines()
	}
	return b.finish(), nil
}

// openSerial opens a serial port, which restarts most boards.
func openSerial(path string, baud int) (transport.Conn, error) {
	conn, err := serial.Open(path, baud)
	switch {
	case err == nil:
		return conn, nil
	case strings.HasPrefix(err.Error(), "in use"):
		return nil, ferrule.Errorf(ferrule.Busy, "opening %s: %w", path, err).
			WithHint("If a gateway uses it, find the device with `ferrule devices` and run `ferrule release NAME -- ferrule check %s`. Otherwise close the other program.", path)
	}
	return nil, ferrule.Errorf(ferrule.Offline, "opening %s: %w", path, err).WithHint("Run `ferrule doctor` to see the ports of this machine.")
}

// dialTimeout bounds one attempt to connect.
const dialTimeout = 5 * time.Second

func dialTCP(ctx context.Context, address string) (transport.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Offline, "connecting to %s: %w", address, err).WithHint("Check the address and that the device is on.")
	}
	return conn, nil
}

// line returns a request as one line.
func (b *board) line(method, params string) (id int, line string) {
	id = b.nextID
	b.nextID++
	return id, string(jsonrpc.AppendRequest(nil, id, method, []byte(params))) + "\n"
}

// lineTime returns how long so many bytes take on the line.
func (b *board) lineTime(n int) time.Duration {
	if b.baud == 0 {
		return 0
	}
	return time.Duration(n) * 10 * time.Second / time.Duration(b.baud) * 5 / 4
}

// outcome is what became of a request.
type outcome string

const (
	answered outcome = "answered"
	mangled  outcome = "mangled" // answered with an error without its ID
	dropped  outcome = "dropped" // a line came, and is not an answer
	silent   outcome = "silent"
	closed   outcome = "closed" // the connection ended
)

// reply is the outcome of a request, with its answer if there is one.
type reply struct {
	outcome
	answer
	line received // that the answer was in
	sent string
	took time.Duration
	errs []answer // without an ID
	tail string   // the unfinished line, if the connection ended
}

func (r reply) evidence() evidence {
	switch {
	case r.outcome == answered:
		return evidence{r.sent, r.raw}
	case len(r.errs) > 0:
		return evidence{r.sent, r.errs[0].raw}
	}
	return evidence{r.sent, r.tail}
}

// ask sends a request in one write and waits for its answer.
func (b *board) ask(ctx context.Context, method, params string, wait time.Duration) reply {
	id, line := b.line(method, params)
	return b.exchange(ctx, id, wait, line)
}

// exchange sends parts of a request with pauses between them, and waits for the answer.
func (b *board) exchange(ctx context.Context, id int, wait time.Duration, parts ...string) reply {
	req := &request{sent: strings.Join(parts, ""), at: time.Now()}
	b.requests[id] = req
	for i, part := range parts {
		if i > 0 && pause(ctx, partPause) != nil {
			break
		}
		if err := b.stream.write(part); err != nil {
			req.given = true
			s, _ := b.stream.counts()
			return reply{outcome: closed, sent: req.sent, tail: string(s.tail)}
		}
	}
	return b.await(ctx, id, wait+b.lineTime(len(req.sent)))
}

// partPause is the time between the parts of a request. It is longer than the silence after
// which the MCP/U library parses what it has, and shorter than the second that library 1.0
// waits.
const partPause = 60 * time.Millisecond

// afterMangled is how long more errors are expected after a request was not understood.
const afterMangled = 150 * time.Millisecond

// await waits for the answer to a request that was sent.
func (b *board) await(ctx context.Context, id int, wait time.Duration) reply {
	defer func() { b.requests[id].given = true }()
	return b.awaitAny(ctx, []int{id}, wait)
}

// awaitAny waits for the answer to one of several requests.
func (b *board) awaitAny(ctx context.Context, ids []int, wait time.Duration) reply {
	out := reply{outcome: silent, sent: b.requests[ids[len(ids)-1]].sent}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-b.stream.in:
			if !ok {
				s, _ := b.stream.counts()
				out.tail = string(s.tail)
				if out.outcome != mangled {
					out.outcome = closed
				}
				return out
			}
			for _, a := range b.receive(line) {
				if a.isInt && slices.Contains(ids, a.id) {
					req := b.requests[a.id]
					out.outcome, out.answer, out.line, out.sent, out.took = answered, a, line, req.sent, line.at.Sub(req.at)
					return out
				}
				if a.mangled() {
					if out.outcome != mangled {
						timeout.Reset(afterMangled + b.lineTime(256))
					}
					out.outcome = mangled
					out.errs = append(out.errs, a)
				}
			}
			if (line.broken || line.tooLong) && out.outcome == silent {
				out.outcome, out.tail = dropped, line.raw
				timeout.Reset(afterMangled + b.lineTime(256))
			}
		case <-timeout.C:
			if s, _ := b.stream.counts(); out.tail == "" {
				out.tail = string(s.tail)
			}
			return out
		case <-ctx.Done():
			return out
		}
	}
}

// receive judges a line, and returns the answers that somebody may wait for: those to
// requests, and errors without an ID.
func (b *board) receive(line received) (wanted []answer) {
	at := evidence{"", line.raw}
	switch {
	case line.tooLong:
		b.find("mcpu.long-line", evidence{}, "a line was longer than %d bytes and was dropped", transport.DefaultLimits().Line)
	case line.broken:
		b.brokenLine(line)
	case len(line.answers) == 0:
		b.noise(line)
	case line.before != "" || line.after != "":
		if !b.greeted && line.after == "" { // start decides
			b.boot(line.before)
			break
		}
		b.find("mcpu.glued-answer", at, "text is on the line of an answer: %q before it, %q after it", cutText(line.before), cutText(line.after))
	}
	for _, a := range line.answers {
		if a.mangled() {
			wanted = append(wanted, a)
			continue
		}
		req := b.requests[a.id]
		if !a.isInt && slices.Contains(b.textIDs, a.idText) {
			continue // a late answer to a request that boards may ignore
		}
		if !a.isInt || req == nil {
			b.find("mcpu.unknown-id", at, "an answer has the id %s, and no request had it", cutText(a.idText))
			continue
		}
		req.answers++
		switch {
		case req.ignored:
		case req.answers > 1:
			b.find("mcpu.answered-twice", evidence{req.sent, a.raw}, "request %d was answered %d times", a.id, req.answers)
		case req.given:
			b.find("mcpu.slow-call", evidence{req.sent, a.raw}, "the answer came %.1f s after the request", line.at.Sub(req.at).Seconds())
		default:
			wanted = append(wanted, a)
		}
	}
	return wanted
}

// brokenLine judges a line that was meant to be an answer.
func (b *board) brokenLine(line received) {
	id, received := "mcpu.bad-json", line.raw
	if strings.Contains(line.raw, `"tools":[`) {
		id = "mcpu.cut-list"
	}
	b.find(id, evidence{"", received}, "a line of %d bytes looks like an answer, but is not valid JSON", len(line.raw))
}

// noise judges a line without an answer.
func (b *board) noise(line received) {
	if !b.greeted { // start decides
		b.boot(line.raw + "\n")
		return
	}
	if text := strings.TrimSpace(line.raw); b.baud > 0 && len(text) > 3 && strings.Contains(b.bootText, text) {
		b.find("mcpu.restarted", evidence{"", line.raw}, "the board printed the text of its start, while its port was open")
		return
	}
	b.find("mcpu.debug-lines", evidence{"", line.raw}, "the board prints lines that are not answers")
}

// boot keeps text that the board printed before it answered for the first time.
func (b *board) boot(text string) {
	if b.greetings == 0 && len(b.bootText) < maxTail {
		b.bootText += text
	}
}

func cutText(s string) string {
	return ferrule.OneLine(ferrule.Clean(s, ferrule.MaxText), 60)
}

// drain takes what has arrived, until nothing arrives for a moment.
func (b *board) drain(ctx context.Context, silence, limit time.Duration) {
	end := time.Now().Add(limit)
	for time.Now().Before(end) {
		select {
		case line, ok := <-b.stream.in:
			if !ok {
				return
			}
			b.receive(line)
		case <-time.After(silence):
			return
		case <-ctx.Done():
			return
		}
	}
}

// collect returns the answers that arrive until nothing arrives for a moment, and some seconds
// at most. It returns errors without an ID too.
func (b *board) collect(ctx context.Context, first, silence time.Duration, ids ...int) (all []answer) {
	for _, id := range ids {
		defer func() { b.requests[id].given = true }()
	}
	wait, end := first, time.After(first+3*time.Second+b.lineTime(infoSize))
	for {
		select {
		case <-end:
			return all
		case line, ok := <-b.stream.in:
			if !ok {
				return all
			}
			if got := b.receive(line); len(got) > 0 {
				all = append(all, got...)
				wait = silence
			}
			if len(ids) > 0 && !slices.ContainsFunc(ids, func(id int) bool { return b.requests[id].answers == 0 }) {
				return all
			}
		case <-time.After(wait):
			return all
		case <-ctx.Done():
			return all
		}
	}
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxBroken is how often a board may break its connection before the check gives up.
const maxBroken = 4

// recover connects again after the connection ended or the board stopped answering.
func (b *board) recover(ctx context.Context) error {
	if b.broken++; b.broken > maxBroken {
		return errGiveUp
	}
	_, err := b.connect(ctx)
	return err
}

// connect closes the connection, opens another one and waits for get_info. It returns how
// long that took.
func (b *board) connect(ctx context.Context) (time.Duration, error) {
	b.stream.close()
	s, _ := b.stream.counts()
	b.noiseBytes, b.noiseLines = b.noiseBytes+s.noise, b.noiseLines+s.lines
	b.greeted = false
	began := time.Now()
	for {
		conn, err := b.open(ctx)
		if err == nil {
			b.stream = newStream(conn)
			break
		}
		if ctx.Err() != nil || time.Since(began) > reconnectLimit {
			b.stream = newStream(gone{})
			b.find("mcpu.no-reconnect", evidence{}, "a new connection failed for %v: %s", reconnectLimit, err)
			return 0, errGiveUp
		}
		if pause(ctx, 200*time.Millisecond) != nil {
			b.stream = newStream(gone{})
			return 0, ctx.Err()
		}
	}
	if _, err := b.greet(ctx); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// reconnectLimit is how long a board may take until it accepts a connection again.
const reconnectLimit = 10 * time.Second

// gone is a connection that has ended.
type gone struct{}

func (gone) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (gone) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (gone) Close() error                     { return nil }
func (gone) SetReadDeadline(time.Time) error  { return nil }
func (gone) SetWriteDeadline(time.Time) error { return nil }
