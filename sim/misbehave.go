package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Behaviour is a way in which boards are known to misbehave.
type Behaviour struct {
	Name string
	Text string

	// begin is called when a client connects.
	begin func(c *conversation) error
	// request is called with each request, and has it answered.
	request func(c *conversation, line []byte) error
	// answer is called with each answer, and writes it.
	answer func(c *conversation, req request, answer []byte) error
	// list changes what list_tools answers.
	list func(c *conversation, list map[string]any)
	// info changes what get_info answers.
	info func(info map[string]any)
}

// request is what a behaviour wants to know of a request.
type request struct {
	ID     int    `json:"id"`
	Method string `json:"method"`
}

func parseRequest(line []byte) (r request) {
	json.Unmarshal(line, &r) // what cannot be read has no method
	return r
}

// isCall tells a tool from the greeting.
func (r request) isCall() bool { return r.Method != "get_info" && r.Method != "list_tools" }

var errHangUp = errors.New("the board hangs up")

// FindBehaviour returns a behaviour by its name; no name is none.
func FindBehaviour(name string) (Behaviour, error) {
	if name == "" {
		return Behaviour{}, nil
	}
	for _, b := range Behaviours() {
		if b.Name == name {
			return b, nil
		}
	}
	var names []string
	for _, b := range Behaviours() {
		names = append(names, b.Name)
	}
	return Behaviour{}, fmt.Errorf("no board misbehaves by %q; there are %s", name, strings.Join(names, ", "))
}

// Behaviours lists every behaviour by name.
func Behaviours() []Behaviour {
	all := slices.Concat(noisy(), lossy(), listings(), hostile())
	slices.SortFunc(all, func(a, b Behaviour) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// edit changes the answers to the greeting as the behaviour wants.
func (b Behaviour) edit(c *conversation, req request, answer []byte) []byte {
	change := map[string]bool{"list_tools": b.list != nil, "get_info": b.info != nil}
	if !change[req.Method] {
		return answer
	}
	var message map[string]any
	if json.Unmarshal(answer, &message) != nil {
		return answer
	}
	result, _ := message["result"].(map[string]any)
	if req.Method == "list_tools" {
		b.list(c, result)
	} else {
		b.info(result)
	}
	edited, err := json.Marshal(message)
	if err != nil {
		return answer
	}
	return append(edited, '\r', '\n')
}

// noisy boards say more than they are asked for.
func noisy() []Behaviour {
	return []Behaviour{
		{
			Name: "boot-noise", Text: "boots when connected to: garbage, boot messages, then deaf for half a second",
			begin: func(c *conversation) error {
				if err := c.say("\x00\xf8\xfe\x80\r\nets Jun  8 2016 00:22:57\r\n\r\nrst:0x1 (POWERON_RESET),boot:0x13 {\"SPI_FAST\r\nload:0x3fff0030"); err != nil {
					return err
				}
				time.Sleep(500 * time.Millisecond)
				c.SetReadDeadline(time.Now().Add(time.Millisecond))
				c.Read(make([]byte, 4096)) // what came meanwhile is lost
				c.SetReadDeadline(time.Time{})
				return nil
			},
		},
		{
			Name: "glued", Text: "prints text without a line end before each answer, and some after it",
			answer: func(c *conversation, _ request, answer []byte) error {
				return c.say(`dbg {"free":` + strings.TrimSuffix(string(answer), "\r\n") + " ok\r\n")
			},
		},
		{
			Name: "chatter", Text: "prints debug lines, some of them JSON, around each answer",
			answer: func(c *conversation, req request, answer []byte) error {
				return c.say(fmt.Sprintf("[%d] heap 214332\r\n{\"debug\":%d}\r\n{\"result\":\"for nobody\",\"id\":\"%d\"}\r\n%s{\"note\":\"done\"\r\n", req.ID, req.ID, req.ID, answer))
			},
		},
		{
			Name: "pieces", Text: "sends each answer a few bytes at a time",
			answer: func(c *conversation, _ request, answer []byte) error {
				for len(answer) > 0 {
					n := min(37, len(answer))
					if err := c.say(string(answer[:n])); err != nil {
						return err
					}
					answer = answer[n:]
					time.Sleep(time.Millisecond)
				}
				return nil
			},
		},
		{
			Name: "wrong-id", Text: "sends an answer that nobody asked for before each one",
			answer: func(c *conversation, req request, answer []byte) error {
				return c.say(fmt.Sprintf("{\"result\":{\"value\":false},\"jsonrpc\":\"2.0\",\"id\":%d}\r\n%s", req.ID+1, answer))
			},
		},
		{
			Name: "twice", Text: "sends each answer twice",
			answer: func(c *conversation, _ request, answer []byte) error { return c.say(string(answer) + string(answer)) },
		},
		{
			Name: "slow-line", Text: "sends at the speed of a serial line of 9600 baud",
			answer: func(c *conversation, _ request, answer []byte) error {
				for len(answer) > 0 {
					n := min(48, len(answer))
					if err := c.say(string(answer[:n])); err != nil {
						return err
					}
					answer = answer[n:]
					time.Sleep(time.Duration(n) * 10 * time.Second / 9600)
				}
				return nil
			},
		},
	}
}

// lossy boards lose requests, answers or the connection.
func lossy() []Behaviour {
	const mangled = "{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-32700,\"message\":\"Parse error\"}}\r\n"
	return []Behaviour{
		{
			Name: "fragments", Text: "reads every third call in two pieces, and can parse neither",
			request: func(c *conversation, line []byte) error {
				if parseRequest(line).isCall() && c.board.calls%3 == 0 {
					return c.say(mangled + mangled)
				}
				return c.answer(line)
			},
		},
		{
			Name: "small-buffer", Text: "reads 64 bytes at a time and takes them for a request",
			request: func(c *conversation, line []byte) error {
				for len(line) > 0 {
					n := min(64, len(line))
					if err := c.answer(line[:n]); err != nil {
						return err
					}
					line = line[n:]
				}
				return nil
			},
		},
		{
			Name: "int16", Text: "ignores ids that do not fit 16 bits, as AVR boards do",
			request: func(c *conversation, line []byte) error {
				if parseRequest(line).ID > 32767 {
					return nil
				}
				return c.answer(line)
			},
		},
		{
			Name: "late", Text: "answers calls three seconds late",
			answer: func(c *conversation, req request, answer []byte) error {
				if req.isCall() {
					time.Sleep(3 * time.Second)
				}
				return c.say(string(answer))
			},
		},
		{
			Name: "silent", Text: "does what it is told and never says so",
			answer: func(c *conversation, req request, answer []byte) error {
				if req.isCall() {
					return nil
				}
				return c.say(string(answer))
			},
		},
		{
			Name: "deaf", Text: "lets itself be connected to and never answers anything",
			request: func(*conversation, []byte) error { return nil },
		},
		{
			Name: "hang-up", Text: "breaks the connection in the middle of every third answer to a call",
			answer: func(c *conversation, req request, answer []byte) error {
				if req.isCall() && c.board.calls%3 == 0 {
					c.say(string(answer[:len(answer)/2]))
					return errHangUp
				}
				return c.say(string(answer))
			},
		},
		{
			Name: "reboot", Text: "reboots instead of doing every fifth call",
			request: func(c *conversation, line []byte) error {
				if parseRequest(line).isCall() && c.board.calls%5 == 0 {
					return errHangUp
				}
				return c.answer(line)
			},
		},
		{
			Name: "failing", Text: "tries every call and fails",
			answer: func(c *conversation, req request, answer []byte) error {
				if req.isCall() {
					return c.say(fmt.Sprintf("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32603,\"message\":\"I2C error 2\"}}\r\n", req.ID))
				}
				return c.say(string(answer))
			},
		},
	}
}
