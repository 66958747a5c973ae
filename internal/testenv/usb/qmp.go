//go:build linux

package usb

import (
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// qmp is QEMU's control connection: JSON commands, answers, and events between
// them.
type qmp struct {
	conn   net.Conn
	in     *json.Decoder
	events map[string]int // how often each came and was not waited for
}

type object map[string]any

// message is whatever QEMU says.
type message struct {
	Return json.RawMessage
	Error  *struct{ Desc string }
	Event  string
}

// newQMP takes the greeting and begins.
func newQMP(conn net.Conn) (*qmp, error) {
	q := &qmp{conn: conn, in: json.NewDecoder(conn), events: make(map[string]int)}
	if _, err := q.next(); err != nil {
		return nil, err
	}
	return q, q.execute("qmp_capabilities", nil)
}

// execute gives a command and waits for its answer.
func (q *qmp) execute(command string, arguments object) error {
	request := object{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(q.conn).Encode(request); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	for {
		m, err := q.next()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", command, err)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", command, m.Error.Desc)
		case m.Return != nil:
			return nil
		}
	}
}

// await waits until an event has come.
func (q *qmp) await(event string) error {
	for q.events[event] == 0 {
		if _, err := q.next(); err != nil {
			return fmt.Errorf("waiting for %s: %w", event, err)
		}
	}
	q.events[event]--
	return nil
}

// next reads a message, and counts events.
func (q *qmp) next() (message, error) {
	var m message
	q.conn.SetReadDeadline(time.Now().Add(patience))
	if err := q.in.Decode(&m); err != nil {
		return m, err
	}
	if m.Event != "" {
		q.events[m.Event]++
	}
	return m, nil
}
