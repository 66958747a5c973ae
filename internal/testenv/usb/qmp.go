//go:build linux

package usb

import (
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// qmp is QEMU's control connection. It carries JSON commands, answers and events.
type qmp struct {
	conn   net.Conn
	in     *json.Decoder
	events map[string]int // number of events that await has not consumed
}

type object map[string]any

// message is a message from QEMU.
type message struct {
	Return json.RawMessage
	Error  *struct{ Desc string }
	Event  string
}

// newQMP reads the greeting and enters command mode.
func newQMP(conn net.Conn) (*qmp, error) {
	q := &qmp{conn: conn, in: json.NewDecoder(conn), events: make(map[string]int)}
	if _, err := q.next(); err != nil {
		return nil, err
	}
	return q, q.execute("qmp_capabilities", nil)
}

// execute sends a command and waits for its answer.
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

// await waits for an event.
func (q *qmp) await(event string) error {
	for q.events[event] == 0 {
		if _, err := q.next(); err != nil {
			return fmt.Errorf("waiting for %s: %w", event, err)
		}
	}
	q.events[event]--
	return nil
}

// next reads a message and counts events.
func (q *qmp) next() (message, error) {
	var m message
	q.conn.SetReadDeadline(time.Now().Add(timeout))
	if err := q.in.Decode(&m); err != nil {
		return m, err
	}
	if m.Event != "" {
		q.events[m.Event]++
	}
	return m, nil
}
