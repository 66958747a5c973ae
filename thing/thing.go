// Package thing is the device SDK of Ferrule. It turns a Go program into a self-describing
// device: you declare pins and tools, and the package derives the description that agents
// read, checks the arguments of calls, and speaks the protocol.
//
// A complete device:
//
//	type Watering struct {
//		Seconds int `json:"seconds" jsonschema:"how long, 1 to 60"`
//	}
//
//	func main() {
//		board := thing.New("greenhouse", "1.0.0")
//		board.Output(2, "pump", "Water pump", setPump)
//		board.Analog(34, "moisture", "Soil moisture, wetter is more", readMoisture).
//			Sampled(time.Second, 120).Summary()
//		thing.Tool(board, "water", "Run the pump for some seconds",
//			func(ctx context.Context, in Watering) (string, error) {
//				return "done", runPump(ctx, in.Seconds)
//			})
//		listener, err := net.Listen("tcp", ":4242")
//		if err != nil {
//			log.Fatal(err)
//		}
//		log.Fatal(board.ServeTCP(context.Background(), listener))
//	}
//
// To connect it to a gateway, run
//
//	ferrule up --tcp greenhouse=192.168.1.20:4242
//
// # Protocols
//
// A Device can be served by several protocols. The declaration stays the same.
//
//	Device ─▶ Serve, ServeTCP   MCP/U over a serial port or TCP, one request per line
//	       ─▶ thing/mcpserver   MCP over HTTP and WebSocket, found by mDNS
//	       ─▶ thing/xiaozhi     the protocol of xiaozhi voice toys
//
// # Tools
//
// [Tool] declares a tool with Go types for its arguments and its result. The JSON Schemas are
// derived: names from json tags, descriptions from jsonschema tags, and a field without
// omitempty is required. Arguments are checked before the function is called. A result is a
// struct or another JSON value, a text, an [Image], [Audio], a [Document], or [Parts].
//
// Options describe what a tool does. [Reads], [Idempotent] and [Endangers] tell the gateway
// whether a call may be retried or needs approval, and [UserOnly] hides a tool from models.
// MCP/U cannot express these four; over MCP/U the owner declares them in an overlay.
//
// A tool that returns an error has failed, and may have changed something. A tool that
// returns a [RefusedError] has done nothing, so the caller may safely try something else.
//
// # Pins
//
// Pins need no tools. In every protocol, built-in tools act on them:
//
//	Output   gpio_write, gpio_read
//	Input    gpio_read
//	PWM      pwm_write
//	Analog   adc_read
//
// # Hardware
//
// On a Linux computer, thing/hardware has ready-made tools for GPIO lines, PWM, servos, I2C,
// addressable LEDs and sensors, and thing/linux makes a device of the whole computer.
//
// # Sampling
//
// The gateway records what a device measures, without a call by an agent:
//
//	Sampled      the pin is read at an interval, the last samples are kept in a ring buffer,
//	             and the gateway reads the buffer often enough to miss none (get_pin_buffer)
//	Summary      minimum, maximum, average and latest sample (get_pin_summary)
//	Thresholds   whether the latest sample is too low or too high (get_pin_events)
//	Polled       a tool that the gateway calls at an interval; each number in its result
//	             becomes a signal
//
// # Concurrency
//
// A device answers one request at a time, so two tools never run at the same time. The
// functions of pins are also called one at a time. A sampled pin may be read while a tool
// runs: state that both use needs a lock.
//
// The package shares the MCP/U specification with the gateway, but no code, so that each
// tests the other.
package thing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Device is a device. Declare its pins before it is served, and its tools if they stay; tools
// whose hardware comes and goes can be added and removed at any time. It answers one request at
// a time.
type Device struct {
	// Platform is the platform in get_info.
	Platform string
	// Profile is the memory profile in get_info. Empty leaves it out, which means that
	// requests may have any length.
	Profile string

	name, version string
	withContext   func(ctx context.Context) context.Context // of a clone; else nil

	turn  sync.Mutex // held while a request is answered
	mu    sync.Mutex // not held while a tool runs, so that tools can use the device
	pins  []*Pin
	tools []*tool
}

// New returns a device. The name is that of its model, and the version that of its firmware:
// all devices of the same make share them.
func New(name, version string) *Device {
	return &Device{name: name, version: version, Platform: "go"}
}

// Serve answers MCP/U requests on rw until rw or ctx ends; it then returns nil. If rw is an
// io.Closer, it is closed when ctx ends.
func (d *Device) Serve(ctx context.Context, rw io.ReadWriter) error {
	return d.serve(ctx, rw, func([]byte) bool { return true })
}

// serve is Serve that ends after a line which proper does not accept.
func (d *Device) serve(ctx context.Context, rw io.ReadWriter, proper func(line []byte) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c, ok := rw.(io.Closer); ok {
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
	}
	defer d.sample(ctx)()
	in := bufio.NewReaderSize(rw, maxRequest)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // handled as a request, as firmware does
			err = nil
		}
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading requests: %w", err)
		}
		if answer := d.Answer(ctx, line); answer != nil {
			if _, err := rw.Write(answer); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
		if !proper(line) {
			return nil
		}
	}
}

// isObject reports whether a line is empty or begins as a request does.
func isObject(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '{'
}

// maxRequest is the length of the longest request.
const maxRequest = 64 << 10

// ServeTCP serves one client after the other until ctx ends; it then returns nil. It closes
// ln. It closes a connection after a line that does not begin with a brace: otherwise any web
// page could make a browser send a request, in a line below those of HTTP.
func (d *Device) ServeTCP(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	defer ln.Close()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting: %w", err)
		}
		d.serve(ctx, conn, isObject) // an error ends only this client
		conn.Close()
	}
}

// sample takes samples while the device is served, if a pin is sampled. The returned function
// stops it.
func (d *Device) sample(ctx context.Context) (stop func()) {
	next, any := d.Tick(time.Now())
	if !any {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-time.After(time.Until(next)):
				next, _ = d.Tick(now)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Tick takes the samples that are due. It returns when the next one is due, and whether any
// pin is sampled. Serve calls it; it is exported for programs that serve many devices with
// Answer.
func (d *Device) Tick(now time.Time) (next time.Time, any bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pins {
		if p.interval == 0 {
			continue
		}
		due := p.tick(now)
		if !any || due.Before(next) {
			next, any = due, true
		}
	}
	return next, any
}
