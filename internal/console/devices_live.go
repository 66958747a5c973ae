package console

import (
	"context"
	"fmt"
	"hash/fnv"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// valueTopic plus the ID of a device is the topic of its new values, as long as a list shows
// the device.
const valueTopic = "values/"

// liveValues has the latest values of devices on open lists. It follows each device once, and
// draws each value once, for all pages that show it.
type liveValues struct {
	mu      sync.Mutex
	devices map[string]*liveDevice
}

// liveDevice is a device on an open list.
type liveDevice struct {
	shown   int // number of lists
	stop    func()
	row     api.DeviceRow // what all people see of it
	version int
	// unknown is set if a signal was heard that is not in row, and reloaded is when the row
	// was last read because of that.
	unknown  bool
	reloaded time.Time
	drawn    map[string]drawnValue // by prefix and template
}

// drawnValue is HTML of a version of the values.
type drawnValue struct {
	html    template.HTML
	version int
	at      time.Time
}

// follow begins to follow the values of a device. row has those that are known. It subscribes
// without the lock, because Samples waits for calls of heard, which need the lock.
func (l *liveValues) follow(c *Console, row api.DeviceRow) {
	l.mu.Lock()
	if l.devices == nil {
		l.devices = make(map[string]*liveDevice)
	}
	d := l.devices[row.ID]
	first := d == nil
	if first {
		d = &liveDevice{row: row, drawn: make(map[string]drawnValue)}
		l.devices[row.ID] = d
	}
	d.shown++
	l.mu.Unlock()
	if !first {
		return
	}
	stop := c.parts.Streams.Samples(row.ID, "", func(r ferrule.Reading) { l.heard(c, r) })
	l.mu.Lock()
	d.stop = stop
	l.mu.Unlock()
}

// leave ends what follow began.
func (l *liveValues) leave(id string) {
	l.mu.Lock()
	d := l.devices[id]
	if d == nil {
		l.mu.Unlock()
		return
	}
	d.shown--
	last, stop := d.shown == 0, d.stop // set: this list, or one before, has subscribed
	if last {
		delete(l.devices, id)
	}
	l.mu.Unlock()
	if last {
		stop()
	}
}

// heard takes new values. If there is room for a signal that is not shown yet, the row is read
// again.
func (l *liveValues) heard(c *Console, r ferrule.Reading) {
	l.mu.Lock()
	d := l.devices[r.Device]
	changed := false
	if d != nil {
		values := slices.Clone(d.row.Values) // drawn without the lock
		for _, b := range r.Batches {
			at := slices.IndexFunc(values, func(v api.DeviceValue) bool { return v.Signal == b.Signal })
			if n := len(b.Samples); at >= 0 && n > 0 && b.Samples[n-1].Time.After(values[at].Time) {
				values[at].Value, values[at].Time, changed = b.Samples[n-1].Value, b.Samples[n-1].Time, true
			}
			if at < 0 && len(values) < api.MaxValues && time.Since(d.reloaded) > reloadEvery {
				d.unknown, changed = true, true
			}
			if n := len(b.Samples); n > 0 && b.Samples[n-1].Time.After(d.row.Heard) {
				d.row.Heard, changed = b.Samples[n-1].Time, true
			}
		}
		d.row.Values = values
		d.version++
	}
	l.mu.Unlock()
	if changed {
		c.hub.publish(valueTopic + r.Device)
	}
}

// reloadEvery limits how often the row of a device is read because of a new signal.
const reloadEvery = 5 * time.Second

// isOther reports whether a device has other signals than a row.
func (l *liveValues) isOther(row api.DeviceRow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.devices[row.ID]
	return d != nil && (d.unknown || len(d.row.Values) != len(row.Values))
}

// replace sets what is known about the values of a device.
func (l *liveValues) replace(row api.DeviceRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.devices[row.ID]; d != nil {
		d.row, d.unknown, d.reloaded = row, false, time.Now()
		d.version++
	}
}

// current returns a row with the latest values. Its switch stays: not everybody has it.
func (l *liveValues) current(row api.DeviceRow) api.DeviceRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.devices[row.ID]; d != nil {
		row.Values, row.More, row.Heard = d.row.Values, d.row.More, d.row.Heard
		if row.Switch != nil {
			now := *row.Switch
			for _, v := range row.Values {
				if v.Signal == now.Tool {
					now.On = v.Value != 0
				}
			}
			row.Switch = &now
		}
	}
	return row
}

// draw returns the values of a device, drawn by a template. late reports that newer values
// must be drawn a moment later, because some were drawn just now.
func (l *liveValues) draw(ctx context.Context, c *Console, item deviceItem, name string) (html template.HTML, late bool, err error) {
	key := item.Prefix + name
	l.mu.Lock()
	d := l.devices[item.ID]
	if d == nil {
		l.mu.Unlock()
		return "", false, nil
	}
	known, version := d.drawn[key], d.version
	l.mu.Unlock()
	if known.html != "" && (known.version == version || time.Since(known.at) < updateEvery) {
		return known.html, known.version != version, nil
	}
	item = deviceItem{DeviceRow: l.current(item.DeviceRow), Prefix: item.Prefix} // nothing of the person
	item.Sparks = c.sparks.of(ctx, c.api, item.DeviceRow)
	text, err := drawHTML(name, item)
	if err != nil {
		return "", false, err
	}
	l.mu.Lock()
	d.drawn[key] = drawnValue{text, version, time.Now()}
	l.mu.Unlock()
	return text, false, nil
}

func drawHTML(name string, data any) (template.HTML, error) {
	text, err := html(name, data)
	return template.HTML(text), err
}

// devicesLive keeps an open list current: the rows that it shows, and what needs the person.
type devicesLive struct {
	*Console
	v *visit
	// at is when the page was drawn, and drawn the version of the list that it had then.
	at      time.Time
	drawn   string
	stale   bool // the list is another one now
	changed func(string)

	// The following is used by one goroutine.
	shown map[string][]shownItem // by ID
	order string                 // IDs of shown
	stops []func()
	next  time.Time // when the summary may be drawn again
	later bool      // and that is planned
}

// shownItem is a device on a list, as a card or as a row.
type shownItem struct {
	*deviceItem
	card bool
}

// freshFor is how long a page that was drawn is current enough to begin with.
const freshFor = 5 * time.Second

func (c *Console) newDevicesLive(v *visit) (*devicesLive, error) {
	q := v.r.URL.Query()
	ms, _ := strconv.ParseInt(q.Get("at"), 10, 64)
	if _, err := devicesQuery(v); err != nil {
		return nil, err
	}
	return &devicesLive{Console: c, v: v, at: time.UnixMilli(ms), drawn: q.Get("drawn")}, nil
}

func (l *devicesLive) watch(changed func(string)) func() {
	l.changed = changed
	stop := l.hub.subscribe(changed, topicDevices, topicApprovals, topicStop)
	if p, err := l.listDevices(l.v.ctx(), l.v); err == nil {
		l.show(p)
		l.stale = p.version() != l.drawn
	}
	return func() {
		stop()
		l.leave()
	}
}

// show follows the devices of a list.
func (l *devicesLive) show(p *deviceList) {
	stops := l.stops
	l.stops, l.shown = nil, make(map[string][]shownItem)
	var topics []string
	add := func(items []deviceItem, card bool) {
		for i := range items {
			d := &items[i]
			if d.Fold != nil {
				continue
			}
			first := l.shown[d.ID] == nil
			if l.shown[d.ID] = append(l.shown[d.ID], shownItem{d, card}); !first {
				continue
			}
			topics = append(topics, deviceTopic+d.ID, valueTopic+d.ID)
			l.listed.follow(l.Console, d.DeviceRow)
			l.stops = append(l.stops, func() { l.listed.leave(d.ID) })
		}
	}
	add(p.Pinned, true)
	add(p.Cards, true)
	for _, hub := range p.Hubs {
		add(hub.Rows, false)
	}
	if p.Table != nil {
		add(p.Table.Rows, false)
	}
	l.stops = append(l.stops, l.hub.subscribe(l.changed, topics...))
	l.order = orderOf(p)
	for _, stop := range stops {
		stop()
	}
}

func (l *devicesLive) leave() {
	for _, stop := range l.stops {
		stop()
	}
}

// orderOf returns which devices a list shows, and in which order.
func orderOf(p *deviceList) string {
	var b strings.Builder
	tables := p.Hubs
	if p.Table != nil {
		tables = append(slices.Clip(tables), *p.Table)
	}
	for _, items := range append([][]deviceItem{p.Pinned, p.Cards}, rowsOf(tables)...) {
		for _, d := range items {
			b.WriteString(d.ID)
			if d.Fold != nil {
				b.WriteString("+")
				b.WriteString(strconv.Itoa(d.Fold.Devices))
			}
			b.WriteString(" ")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// version returns a text that differs if other devices are in the list or need the person.
func (p *deviceList) version() string {
	sum := fnv.New64a()
	fmt.Fprintln(sum, orderOf(p), p.Counts, p.Filters.Devices, p.Filters.Tools)
	for _, d := range p.Needs.Devices {
		fmt.Fprintln(sum, d.ID)
	}
	for _, call := range p.Needs.Calls {
		fmt.Fprintln(sum, call.ID)
	}
	return strconv.FormatUint(sum.Sum64(), 36)
}

func rowsOf(tables []deviceTable) (all [][]deviceItem) {
	for _, t := range tables {
		all = append(all, t.Rows)
	}
	return all
}

func (l *devicesLive) update(ctx context.Context, keys []string, out *updates) error {
	if len(keys) == 0 {
		return l.catchUp(ctx, out)
	}
	summary := false
	for _, key := range keys {
		var err error
		switch {
		case strings.HasPrefix(key, valueTopic):
			err = l.value(ctx, strings.TrimPrefix(key, valueTopic), out)
		case strings.HasPrefix(key, deviceTopic):
			err = l.device(ctx, strings.TrimPrefix(key, deviceTopic), out)
		case key == topicStop:
			for id := range l.shown {
				if err = l.device(ctx, id, out); err != nil {
					return err
				}
			}
		default:
			summary = true
		}
		if err != nil {
			return err
		}
	}
	if summary {
		return l.summary(ctx, out)
	}
	return nil
}

// catchUp sends what has changed since the page was drawn. A page that was hidden for a while
// gets everything.
func (l *devicesLive) catchUp(ctx context.Context, out *updates) error {
	old := time.Since(l.at) > freshFor
	for id, all := range l.shown {
		if old || all[0].Since.After(l.at) {
			if err := l.device(ctx, id, out); err != nil {
				return err
			}
		}
	}
	if l.stale {
		l.order = "" // of the page
	}
	if old || l.stale {
		return l.summary(ctx, out)
	}
	return nil
}

// value sends the new values of a device.
func (l *devicesLive) value(ctx context.Context, id string, out *updates) error {
	for _, d := range l.shown[id] {
		if l.listed.isOther(d.DeviceRow) {
			row, err := l.api.Device(ctx, l.v.who, api.DeviceInput{Device: id})
			if err != nil {
				return err
			}
			d.DeviceRow = row
			l.listed.replace(row)
			if err := out.element("w-"+d.Key(), "device-switch", d.deviceItem); err != nil {
				return err
			}
		}
		names := map[string]string{"v": "device-words", "p": "device-spark", "h": "device-heard"}
		if d.card {
			names = map[string]string{"v": "device-values", "h": "device-heard"}
		}
		for part, name := range names {
			text, late, err := l.listed.draw(ctx, l.Console, *d.deviceItem, name)
			if err != nil {
				return err
			}
			if late {
				time.AfterFunc(updateEvery, func() { l.changed(valueTopic + id) })
			}
			if err := out.element(part+"-"+d.Key(), "as-is", text); err != nil {
				return err
			}
		}
		if d.card || d.Switch == nil {
			continue
		}
		if row := l.listed.current(d.DeviceRow); row.Switch != nil && row.Switch.On != d.Switch.On {
			d.DeviceRow = row
			if err := out.element("w-"+d.Key(), "device-switch", d.deviceItem); err != nil {
				return err
			}
		}
	}
	return nil
}

// device sends a device whose record changed. One that vanished or has another name is not
// sent: the list is drawn again.
func (l *devicesLive) device(ctx context.Context, id string, out *updates) error {
	row, ok := l.api.DeviceRow(l.v.who, id)
	if !ok {
		return nil
	}
	for _, d := range l.shown[id] {
		row.Switch = d.Switch
		d.DeviceRow = l.listed.current(row)
		d.Sparks = l.sparks.of(ctx, l.api, d.DeviceRow)
		names := map[string]string{"s": "device-state", "w": "device-switch"}
		if d.card {
			names = map[string]string{"d": "device-card"}
		}
		for part, name := range names {
			if err := out.element(part+"-"+d.Key(), name, d.deviceItem); err != nil {
				return err
			}
		}
	}
	return l.value(ctx, id, out)
}

// summary sends the counts, what needs the person, and the list if other devices are in it.
// With many devices it is sent less often: the longer it takes, the less.
func (l *devicesLive) summary(ctx context.Context, out *updates) error {
	const rare, least, most = 500, 2 * time.Second, 15 * time.Second
	start := time.Now()
	if wait := l.next.Sub(start); wait > 0 {
		if !l.later {
			l.later = true
			time.AfterFunc(wait+time.Millisecond, func() { l.changed(topicDevices) })
		}
		return nil
	}
	l.later = false
	p, err := l.listDevices(ctx, l.v)
	if err != nil {
		return err
	}
	l.next = time.Now().Add(min(max(rare*time.Since(start), least), most))
	for _, name := range []string{"devices-about", "devices-states", "devices-needs"} {
		if err := out.element(name, name, p); err != nil {
			return err
		}
	}
	if orderOf(p) == l.order {
		return nil
	}
	l.show(p)
	return out.element("devices-list", "devices-list", p)
}
