package console

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// wireRoutes adds the tab with the frames of a device.
func (c *Console) wireRoutes() {
	c.page("GET /devices/{device}/wire", c.wirePage)
	c.livePage("GET /live/devices/{device}/wire", func(v *visit) (live, error) {
		f, err := c.openDevice(v, "Wire")
		if err == nil && !f.IsOwner() {
			err = ferrule.Errorf(ferrule.Denied, "only an owner may see the frames of a device")
		}
		return together{&deviceLive{c, v, f.Device.ID, nil}, &wireLive{Console: c, who: v.who, device: f.Device.ID}}, err
	})
}

// Limits of recorded frames.
const (
	keptFrames = 200         // of one device
	maxFrame   = 2 << 10     // bytes that are shown of a frame
	maxWires   = 16          // devices that are traced at once
	wireLinger = time.Minute // how long frames are recorded after the last page was closed
)

// wires record the frames of devices while a page shows them, and shortly after.
type wires struct {
	mu  sync.Mutex
	all map[string]*wire // by device
}

// wire has the last frames of one device.
type wire struct {
	cancel context.CancelFunc
	used   int // open pages
	ends   *time.Timer

	mu       sync.Mutex
	frames   []frameRow // oldest first
	count    uint64
	problem  string
	watchers map[*func()]bool
}

// frameRow is a frame on a page.
type frameRow struct {
	// ID grows with each frame, also from one recording to the next.
	ID        uint64
	Time      time.Time
	Direction string
	Channel   string
	Data      string
	Note      string
	Cut       bool
}

// At returns the time of a frame with milliseconds.
func (r frameRow) At() string { return r.Time.Local().Format("15:04:05.000") }

// open returns the wire of a device, and begins to record it. release must be called.
func (c *Console) openWire(who ferrule.Principal, device string) (w *wire, release func(), err error) {
	c.wires.mu.Lock()
	defer c.wires.mu.Unlock()
	w = c.wires.all[device]
	if w == nil {
		if len(c.wires.all) >= maxWires {
			return nil, nil, ferrule.Errorf(ferrule.Limited, "the frames of %d devices are recorded already", maxWires).WithHint("close other pages with frames, and try again in a minute")
		}
		if c.wires.all == nil {
			c.wires.all = make(map[string]*wire)
		}
		ctx, cancel := context.WithCancel(context.Background())
		w = &wire{cancel: cancel, count: uint64(time.Now().UnixMicro()), watchers: make(map[*func()]bool)}
		c.wires.all[device] = w
		go func() {
			if err := c.api.FollowTrace(ctx, who, device, w.add); err != nil {
				c.failWire(device, w, ferrule.AsError(err).Message)
			}
		}()
	}
	w.used++
	if w.ends != nil {
		w.ends.Stop()
		w.ends = nil
	}
	return w, sync.OnceFunc(func() { c.leaveWire(device, w) }), nil
}

// leaveWire is called when a page is closed.
func (c *Console) leaveWire(device string, w *wire) {
	c.wires.mu.Lock()
	defer c.wires.mu.Unlock()
	if w.used--; w.used > 0 {
		return
	}
	w.ends = time.AfterFunc(wireLinger, func() {
		c.wires.mu.Lock()
		defer c.wires.mu.Unlock()
		if w.used == 0 && c.wires.all[device] == w {
			delete(c.wires.all, device)
			w.cancel()
		}
	})
}

// close ends all recordings.
func (w *wires) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if one.ends != nil {
			one.ends.Stop()
		}
		one.cancel()
	}
	w.all = nil
}

// add keeps a frame. It is called by what sends and receives, and must be quick.
func (w *wire) add(t ferrule.Trace) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	if len(w.frames) >= 2*keptFrames {
		w.frames = w.frames[:copy(w.frames, w.frames[keptFrames:])]
	}
	w.frames = append(w.frames, frameRow{w.count, t.Time, t.Direction, ferrule.Clean(t.Channel, ferrule.MaxWord), ferrule.Clean(t.Data, maxFrame), ferrule.Clean(t.Note, ferrule.MaxReason), len(t.Data) > maxFrame})
	for fn := range w.watchers {
		(*fn)()
	}
}

// failWire says why frames cannot be recorded. The next page tries again.
func (c *Console) failWire(device string, w *wire, problem string) {
	c.wires.mu.Lock()
	if c.wires.all[device] == w {
		delete(c.wires.all, device)
	}
	c.wires.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = problem
	for fn := range w.watchers {
		(*fn)()
	}
}

// last returns the newest frames, the newest first, and why there are no more.
func (w *wire) last() (rows []frameRow, problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.frames) - 1; i >= 0 && len(rows) < keptFrames; i-- {
		rows = append(rows, w.frames[i])
	}
	return rows, w.problem
}

func (w *wire) watch(fn func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watchers[&fn] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watchers, &fn)
	}
}

// wireView is what the tab shows.
type wireView struct {
	Device  string
	Frames  []frameRow
	Problem string
	// Owner is false for a person who may not see frames.
	Owner bool
}

func (c *Console) wirePage(v *visit) error {
	f, err := c.openDevice(v, "Wire")
	if err != nil {
		return err
	}
	p := wireView{Device: f.Device.ID, Owner: f.IsOwner()}
	if !p.Owner {
		return c.renderDevice(v, http.StatusForbidden, f, page{}, "wire", p)
	}
	if err := c.fillWire(v.who, &p); err != nil {
		p.Problem = ferrule.AsError(err).Message
	}
	return c.renderDevice(v, http.StatusOK, f, page{Live: "/live" + f.Path + "/wire"}, "wire", p)
}

func (c *Console) fillWire(who ferrule.Principal, p *wireView) error {
	w, release, err := c.openWire(who, p.Device)
	if err != nil {
		return err
	}
	defer release()
	p.Frames, p.Problem = w.last()
	return nil
}

// wireLive sends new frames to a page, as the event "frames": rows, the newest first.
type wireLive struct {
	*Console
	who    ferrule.Principal
	device string

	wire *wire
	sent uint64 // ID of the last frame
}

// wireMessage is the event "frames".
type wireMessage struct {
	Rows    string `json:"rows"`
	Problem string `json:"problem,omitempty"`
}

func (l *wireLive) watch(changed func(string)) func() {
	w, release, err := l.openWire(l.who, l.device)
	if err != nil {
		return func() {}
	}
	l.wire = w
	stop := w.watch(func() { changed("wire") })
	return func() {
		stop()
		release()
	}
}

func (l *wireLive) update(_ context.Context, _ []string, out *updates) error {
	if l.wire == nil {
		return nil
	}
	rows, problem := l.wire.last()
	for i, row := range rows {
		if row.ID <= l.sent {
			rows = rows[:i]
			break
		}
	}
	if len(rows) > 0 {
		l.sent = rows[0].ID
	}
	if len(rows) == 0 && problem == "" {
		return nil
	}
	text, err := html("wire-rows", rows)
	if err != nil {
		return err
	}
	return out.event("frames", wireMessage{text, problem})
}
