package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Behaviour is a way in which boards are known to misbehave.
type Behavior struct {
	Name string
	Text string

	board   model                                            // an ESP32 if it is not told
	begin   func(ctx context.Context, c *conversation) error // when a client connects
	request requestFunc
	results results
	answer  answerFunc
}

// What a behaviour does to a request on its way.
type (
	// requestFunc gets each request, and has it answered.
	requestFunc func(ctx context.Context, c *conversation, line []byte) error
	// results change what methods return, by method.
	results map[string]func(c *conversation, result map[string]any)
	// answerFunc gets each answer, and writes it.
	answerFunc func(ctx context.Context, c *conversation, req request, answer string) error
)

var errHangUp = errors.New("the board hangs up")

// Behaviours lists every behaviour by name.
func Behaviors() []Behavior {
	all := slices.Concat(noisy, lossy, listings, firmware, hostile)
	slices.SortFunc(all, func(a, b Behavior) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// findBehaviour returns a behaviour by its name; no name is none.
func findBehaviour(name string) (Behavior, error) {
	if name == "" {
		return Behavior{}, nil
	}
	var names []string
	for _, b := range Behaviors() {
		if b.Name == name {
			return b, nil
		}
		names = append(names, b.Name)
	}
	return Behavior{}, fmt.Errorf("no board misbehaves by %q; there are %s", name, strings.Join(names, ", "))
}

// noisy boards say more than they are asked for.
var noisy = []Behavior{
	{
		Name: "boot-noise", Text: "boots when connected to: garbage, boot messages, then deaf for half a second",
		begin: func(ctx context.Context, c *conversation) error {
			if err := c.say("\x00\xf8\xfe\x80\r\nets Jun  8 2016 00:22:57\r\n\r\nrst:0x1 (POWERON_RESET),boot:0x13 {\"SPI_FAST\r\nload:0x3fff0030"); err != nil {
				return err
			}
			if err := sleep(ctx, 500*time.Millisecond); err != nil {
				return err
			}
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			c.Read(make([]byte, 4096)) // what came meanwhile is lost
			return c.SetReadDeadline(time.Time{})
		},
	},
	{
		Name: "glued", Text: "prints text without a line end before each answer, and some after it",
		answer: func(_ context.Context, c *conversation, _ request, answer string) error {
			return c.say(`dbg {"free":` + strings.TrimSuffix(answer, "\r\n") + " ok\r\n")
		},
	},
	{
		Name: "chatter", Text: "prints debug lines, some of them JSON, around each answer",
		answer: func(_ context.Context, c *conversation, req request, answer string) error {
			return c.say(fmt.Sprintf("[%d] heap 214332\r\n{\"debug\":%d}\r\n{\"result\":\"for nobody\",\"id\":\"%d\"}\r\n%s{\"note\":\"done\"\r\n", req.ID, req.ID, req.ID, answer))
		},
	},
	{
		Name: "pieces", Text: "sends each answer a few bytes at a time",
		answer: func(ctx context.Context, c *conversation, _ request, answer string) error {
			return c.trickle(ctx, answer, 37, time.Millisecond)
		},
	},
	{
		Name: "wrong-id", Text: "sends an answer that nobody asked for before each one",
		answer: func(_ context.Context, c *conversation, req request, answer string) error {
			return c.say(succeed(req.ID+1, map[string]bool{"value": false}) + answer)
		},
	},
	{
		Name: "twice", Text: "sends each answer twice",
		answer: func(_ context.Context, c *conversation, _ request, answer string) error {
			return c.say(answer + answer)
		},
	},
	{
		Name: "slow-line", Text: "sends at the speed of a serial line of 9600 baud",
		answer: func(ctx context.Context, c *conversation, _ request, answer string) error {
			return c.trickle(ctx, answer, 48, 50*time.Millisecond) // ten bits a byte
		},
	},
}

// insteadOf does something else than every nth call.
func insteadOf(n int, do func(c *conversation, req request) error) requestFunc {
	return func(ctx context.Context, c *conversation, line []byte) error {
		if req := parseRequest(line); req.isCall() && c.board.calls%n == 0 {
			return do(c, req)
		}
		return c.answer(ctx, line)
	}
}

// inPieces takes every n bytes for a request.
func inPieces(n int) requestFunc {
	return func(ctx context.Context, c *conversation, line []byte) error {
		for piece := range slices.Chunk(line, n) {
			if err := c.answer(ctx, piece); err != nil {
				return err
			}
		}
		return nil
	}
}

// toCalls answers calls in its own way, and the greeting as it should be.
func toCalls(write answerFunc) answerFunc {
	return func(ctx context.Context, c *conversation, req request, answer string) error {
		if req.isCall() {
			return write(ctx, c, req, answer)
		}
		return c.say(answer)
	}
}

// lossy boards lose requests, answers or the connection.
var lossy = []Behavior{
	{
		Name: "fragments", Text: "reads every third call in two pieces, and can parse neither",
		request: insteadOf(3, func(c *conversation, _ request) error {
			return c.say(fail(0, -32700, "Parse error") + fail(0, -32700, "Parse error"))
		}),
	},
	{
		Name: "small-buffer", Text: "reads 64 bytes at a time and takes them for a request",
		request: inPieces(64),
	},
	{
		Name: "byte-reads", Text: "reads faster than bytes come, and takes each of them for a request",
		request: inPieces(1),
	},
	{
		Name: "invalid-request", Text: "reads every third call wrong, so that it is no request",
		request: insteadOf(3, func(c *conversation, _ request) error { return c.say(fail(0, -32600, "Invalid request")) }),
	},
	{
		Name: "missing-method", Text: "loses the method of every third call",
		request: insteadOf(3, func(c *conversation, req request) error { return c.say(fail(req.ID, -32600, "Missing method")) }),
	},
	{
		Name: "int16", Text: "ignores ids that do not fit 16 bits, as AVR boards do",
		request: func(ctx context.Context, c *conversation, line []byte) error {
			if parseRequest(line).ID > math.MaxInt16 {
				return nil
			}
			return c.answer(ctx, line)
		},
	},
	{
		Name: "late", Text: "answers calls three seconds late",
		answer: toCalls(func(ctx context.Context, c *conversation, _ request, answer string) error {
			if err := sleep(ctx, 3*time.Second); err != nil {
				return err
			}
			return c.say(answer)
		}),
	},
	{
		Name: "silent", Text: "does what it is told and never says so",
		answer: toCalls(func(context.Context, *conversation, request, string) error { return nil }),
	},
	{
		Name: "deaf", Text: "lets itself be connected to and never answers, as one does that has another client",
		request: func(context.Context, *conversation, []byte) error { return nil },
	},
	{
		Name: "half-open", Text: "vanishes after six requests: the connection stays, and nobody is there",
		request: func(ctx context.Context, c *conversation, line []byte) error {
			if c.requests > 6 {
				return nil
			}
			return c.answer(ctx, line)
		},
	},
	{
		Name: "hang-up", Text: "breaks the connection in the middle of every third answer to a call",
		answer: toCalls(func(_ context.Context, c *conversation, _ request, answer string) error {
			if c.board.calls%3 == 0 {
				c.say(answer[:len(answer)/2])
				return errHangUp
			}
			return c.say(answer)
		}),
	},
	{
		Name: "reboot", Text: "reboots instead of doing every fifth call",
		request: insteadOf(5, func(*conversation, request) error { return errHangUp }),
	},
	{
		Name: "failing", Text: "tries every call and fails",
		answer: toCalls(func(_ context.Context, c *conversation, req request, _ string) error {
			return c.say(fail(req.ID, -32603, "I2C error 2"))
		}),
	},
}
