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

// Behavior is a fault of real boards, or a variant of their firmware.
type Behavior struct {
	Name string
	Text string

	board   model                                            // an ESP32 if it is zero
	chunk   int                                              // reads so many bytes at a time as requests; zero if it waits for the end of a line
	begin   func(ctx context.Context, c *boardSession) error // called when a client connects
	request requestFunc
	results results
	answer  answerFunc
}

// Hooks of a behavior.
type (
	// requestFunc handles each request.
	requestFunc func(ctx context.Context, c *boardSession, line []byte) error
	// results change the results of methods, by method.
	results map[string]func(c *boardSession, result map[string]any)
	// answerFunc writes each answer.
	answerFunc func(ctx context.Context, c *boardSession, req request, answer string) error
)

var errHangUp = errors.New("simulated hang-up")

// Behaviors returns all behaviors, sorted by name.
func Behaviors() []Behavior {
	all := slices.Concat(noisy, lossy, listings, firmware, hostile)
	slices.SortFunc(all, func(a, b Behavior) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// findBehavior returns a behavior by name. The name may be empty.
func findBehavior(name string) (Behavior, error) {
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
	return Behavior{}, fmt.Errorf("unknown misbehavior %q: must be one of %s", name, strings.Join(names, ", "))
}

// noisy boards send more than their answers.
var noisy = []Behavior{
	{
		Name: "boot-noise", Text: "boots on connect: garbage, boot messages, then deaf for half a second",
		begin: func(ctx context.Context, c *boardSession) error {
			if err := c.write("\x00\xf8\xfe\x80\r\nets Jun  8 2016 00:22:57\r\n\r\nrst:0x1 (POWERON_RESET),boot:0x13 {\"SPI_FAST\r\nload:0x3fff0030"); err != nil {
				return err
			}
			if err := sleep(ctx, 500*time.Millisecond); err != nil {
				return err
			}
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			c.Read(make([]byte, 4096)) // discard what arrived meanwhile
			return c.SetReadDeadline(time.Time{})
		},
	},
	{
		Name: "glued", Text: "prints text without a line end before each answer, and some after it",
		answer: func(_ context.Context, c *boardSession, _ request, answer string) error {
			return c.write(`dbg {"free":` + strings.TrimSuffix(answer, "\r\n") + " ok\r\n")
		},
	},
	{
		Name: "chatter", Text: "prints debug lines, some of them JSON, around each answer",
		answer: func(_ context.Context, c *boardSession, req request, answer string) error {
			return c.write(fmt.Sprintf("[%d] heap 214332\r\n{\"debug\":%d}\r\n{\"result\":\"for nobody\",\"id\":\"%d\"}\r\n%s{\"note\":\"done\"\r\n", req.ID, req.ID, req.ID, answer))
		},
	},
	{
		Name: "pieces", Text: "sends each answer a few bytes at a time",
		answer: func(ctx context.Context, c *boardSession, _ request, answer string) error {
			return c.trickle(ctx, answer, 37, time.Millisecond)
		},
	},
	{
		Name: "wrong-id", Text: "sends an answer with a wrong ID before each answer",
		answer: func(_ context.Context, c *boardSession, req request, answer string) error {
			return c.write(succeed(req.ID+1, map[string]bool{"value": false}) + answer)
		},
	},
	{
		Name: "twice", Text: "sends each answer twice",
		answer: func(_ context.Context, c *boardSession, _ request, answer string) error {
			return c.write(answer + answer)
		},
	},
	{
		Name: "slow-line", Text: "sends at the speed of a serial line with 9600 baud",
		answer: func(ctx context.Context, c *boardSession, _ request, answer string) error {
			return c.trickle(ctx, answer, 48, 50*time.Millisecond) // ten bits per byte
		},
	},
}

// insteadOf replaces every nth call.
func insteadOf(n int, do func(c *boardSession, req request) error) requestFunc {
	return func(ctx context.Context, c *boardSession, line []byte) error {
		if req := parseRequest(line); req.isCall() && c.board.calls%n == 0 {
			return do(c, req)
		}
		return c.answer(ctx, line)
	}
}

// toCalls applies to the answers of calls only.
func toCalls(write answerFunc) answerFunc {
	return func(ctx context.Context, c *boardSession, req request, answer string) error {
		if req.isCall() {
			return write(ctx, c, req, answer)
		}
		return c.write(answer)
	}
}

// lossy boards lose requests, answers or the connection.
var lossy = []Behavior{
	{
		Name: "fragments", Text: "reads every third call in two parts, and can parse neither",
		request: insteadOf(3, func(c *boardSession, _ request) error {
			return c.write(fail(0, -32700, "Parse error") + fail(0, -32700, "Parse error"))
		}),
	},
	{
		Name: "library", Text: "takes what has arrived for a request, also without a line end, as library 1.1 and later do",
		chunk: math.MaxInt,
	},
	{
		Name: "fifo", Text: "is an ESP32 on a UART with that library: 120 bytes arrive at a time",
		chunk: 120,
	},
	{
		Name: "small-buffer", Text: "is a board on native USB with that library: 64 bytes arrive at a time",
		chunk: 64,
	},
	{
		Name: "byte-reads", Text: "is a board on a slow UART with that library: one byte arrives at a time",
		chunk: 1,
	},
	{
		Name: "invalid-request", Text: "reads every third call incorrectly and answers \"Invalid request\"",
		request: insteadOf(3, func(c *boardSession, _ request) error { return c.write(fail(0, -32600, "Invalid request")) }),
	},
	{
		Name: "missing-method", Text: "loses the method of every third call",
		request: insteadOf(3, func(c *boardSession, req request) error { return c.write(fail(req.ID, -32600, "Missing method")) }),
	},
	{
		Name: "int16", Text: "ignores IDs above 16 bits, as AVR boards do",
		request: func(ctx context.Context, c *boardSession, line []byte) error {
			if parseRequest(line).ID > math.MaxInt16 {
				return nil
			}
			return c.answer(ctx, line)
		},
	},
	{
		Name: "late", Text: "answers calls three seconds late",
		answer: toCalls(func(ctx context.Context, c *boardSession, _ request, answer string) error {
			if err := sleep(ctx, 3*time.Second); err != nil {
				return err
			}
			return c.write(answer)
		}),
	},
	{
		Name: "silent", Text: "runs calls and never answers them",
		answer: toCalls(func(context.Context, *boardSession, request, string) error { return nil }),
	},
	{
		Name: "deaf", Text: "accepts connections and never answers, like a board that is busy with another client",
		request: func(context.Context, *boardSession, []byte) error { return nil },
	},
	{
		Name: "half-open", Text: "vanishes after six requests, without closing the connection",
		request: func(ctx context.Context, c *boardSession, line []byte) error {
			if c.requests > 6 {
				return nil
			}
			return c.answer(ctx, line)
		},
	},
	{
		Name: "hang-up", Text: "closes the connection in the middle of every third answer to a call",
		answer: toCalls(func(_ context.Context, c *boardSession, _ request, answer string) error {
			if c.board.calls%3 == 0 {
				c.write(answer[:len(answer)/2])
				return errHangUp
			}
			return c.write(answer)
		}),
	},
	{
		Name: "reboot", Text: "reboots instead of running every fifth call",
		request: insteadOf(5, func(*boardSession, request) error { return errHangUp }),
	},
	{
		Name: "failing", Text: "tries every call and fails",
		answer: toCalls(func(_ context.Context, c *boardSession, req request, _ string) error {
			return c.write(fail(req.ID, -32603, "I2C error 2"))
		}),
	},
}
