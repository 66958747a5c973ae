package homeassistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// HomeName is the name of the protocol of a home itself: the tools that belong to none of its
// devices. They are written as Go functions from struct to struct.
//
//	HomeDevice --> Sighting --> homeLink --> HomeProtocol --> homeSession --> Hub
const HomeName = "homeassistant-home"

// HomeConfig is how the home itself is a device.
type HomeConfig struct {
	// Name is its ID, and Local as in HubConfig.
	Name  string
	Local bool
	// Devices returns the IDs of the devices of the home that a caller may see, by address.
	Devices func(who ferrule.Principal) map[string]string
}

// HomeDevice reports the home itself as a device.
type HomeDevice struct {
	cfg      HomeConfig
	hub      *Hub
	instance uint64
}

// NewHomeDevice returns the device of a home.
func NewHomeDevice(cfg HomeConfig, hub *Hub) *HomeDevice { return &HomeDevice{cfg: cfg, hub: hub} }

// Watch implements transport.Connector. The home is there while Home Assistant is connected and
// was read.
func (d *HomeDevice) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	const pause = 50 * time.Millisecond
	report := func(absent string) {
		d.instance++
		update(d.cfg.Name, []transport.Sighting{{
			Address: d.cfg.Name, Local: d.cfg.Local, Instance: d.instance, Transport: Name, Name: d.cfg.Name, Title: d.cfg.Name,
			Adopted: true, // its owner configured it
			// Its tools come from this program: they change only with it.
			Attached: true, Absent: absent, Protocols: []string{HomeName}, Open: d.open,
		}})
	}
	report(fmt.Sprintf("Home Assistant %s is not connected", d.cfg.Name))
	for {
		conn, err := d.hub.client.Connect(ctx)
		if err != nil {
			return nil
		}
		for d.hub.current() != conn && conn.Err() == nil && ctx.Err() == nil {
			select {
			case <-time.After(pause):
			case <-conn.Done():
			case <-ctx.Done():
			}
		}
		if conn.Err() == nil && ctx.Err() == nil {
			report("")
		}
		select {
		case <-conn.Done():
			report(fmt.Sprintf("Home Assistant %s is unreachable: %v", d.cfg.Name, conn.Err()))
		case <-ctx.Done():
			return nil
		}
	}
}

// current returns the connection over which everything was read; nil if there is none.
func (h *Hub) current() *api.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conn
}

func (d *HomeDevice) open(context.Context) (transport.Link, error) {
	conn := d.hub.current()
	if conn == nil {
		return nil, errors.New("Home Assistant is not connected")
	}
	return &homeLink{device: d, conn: conn, closed: make(chan struct{})}, nil
}

// homeLink is the link to a home. It has no messages: its session uses the hub.
type homeLink struct {
	transport.Tracer
	device *HomeDevice
	conn   *api.Conn
	once   sync.Once
	closed chan struct{}
}

// Recv implements transport.Link. It returns when the link ends.
func (l *homeLink) Recv(ctx context.Context) (transport.Message, error) {
	select {
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	case <-l.closed:
		return transport.Message{}, transport.ErrClosed
	case <-l.conn.Done():
		return transport.Message{}, l.conn.Err()
	}
}

// Send implements transport.Link.
func (l *homeLink) Send(context.Context, transport.Message) error { return transport.ErrUnsent }

// Close implements transport.Link.
func (l *homeLink) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Info implements transport.Link.
func (l *homeLink) Info() transport.Info {
	return transport.Info{Transport: Name, Address: l.device.cfg.Name}
}

// HomeProtocol greets homes.
type HomeProtocol struct{}

// Greet implements protocol.Protocol. It sends nothing.
func (HomeProtocol) Greet(_ context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	l, ok := link.(*homeLink)
	if !ok {
		return nil, nil, protocol.ErrNotMine
	}
	m := &ferrule.Manifest{Model: "Home Assistant"}
	calls := make(map[string]homeCall)
	for _, t := range homeTools() {
		if t.err != nil {
			return nil, nil, t.err
		}
		m.Tools = append(m.Tools, t.tool)
		calls[t.tool.Name] = t.call
	}
	return &homeSession{link: l, hub: l.device.hub, conn: l.conn, calls: calls}, m, nil
}

// homeSession calls the tools of a home.
type homeSession struct {
	link  *homeLink
	hub   *Hub
	conn  *api.Conn
	calls map[string]homeCall

	crowded atomic.Bool // other callers wait
}

// Yield implements protocol.Yielder.
func (s *homeSession) Yield(waiting bool) { s.crowded.Store(waiting) }

// Run implements protocol.Session.
func (s *homeSession) Run(ctx context.Context) error {
	defer s.link.Close()
	_, err := s.link.Recv(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Invoke implements protocol.Session.
func (s *homeSession) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	fn := s.calls[call.Tool]
	if fn == nil || call.Operation != ferrule.CallTool {
		return nil, ferrule.Errorf(ferrule.Refused, "%s has no tool %s", call.Device, ferrule.Clean(call.Tool, ferrule.MaxToolName))
	}
	if err := s.conn.Err(); err != nil {
		return nil, ferrule.Errorf(ferrule.Offline, "the connection has ended: %w", err)
	}
	s.link.Trace(transport.Out, transport.Message{Channel: channelCall}, call.Tool)
	out, err := fn(ctx, s, call)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(out)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "encoding the result of %s: %w", call.Tool, err).AfterSend()
	}
	return &ferrule.Result{Value: value}, nil
}

// homeCall performs a call of a tool.
type homeCall func(ctx context.Context, s *homeSession, call *ferrule.Call) (any, error)

// homeTool is a tool of a home.
type homeTool struct {
	tool ferrule.Tool
	call homeCall
	err  error
}

// typed returns a tool that calls a function. Its schemas are derived from In and Out.
func typed[In, Out any](tool ferrule.Tool, fn func(ctx context.Context, s *homeSession, call *ferrule.Call, in In) (Out, error)) homeTool {
	var errs [2]error
	tool.Input, errs[0] = schema.For[In]()
	tool.Output, errs[1] = schema.For[Out]()
	return homeTool{tool: tool, err: errors.Join(errs[:]...), call: func(ctx context.Context, s *homeSession, call *ferrule.Call) (any, error) {
		var in In
		if len(call.Args) > 0 {
			if err := json.Unmarshal(call.Args, &in); err != nil {
				return nil, ferrule.Errorf(ferrule.Invalid, "decoding the arguments of %s: %w", tool.Name, err)
			}
		}
		return fn(ctx, s, call, in)
	}}
}

// homeTools returns the tools of a home.
func homeTools() []homeTool {
	return []homeTool{
		findEntities(), listAutomations(), listScenes(), sendNotification(), findServices(), callService(),
	}
}
