package halt

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Time limits of a stop.
const (
	ackTime  = 3 * time.Second // for other nodes to acknowledge; they deny as soon as they hear
	saveTime = time.Second     // for the disk
	toolTime = 5 * time.Second // for a stop tool
)

// maxTools is how many stop tools are called at a time.
const maxTools = 64

// ToolResult is what became of the call of a stop tool.
type ToolResult struct {
	Device string `json:"device"`
	Tool   string `json:"tool"`
	// Error is empty if the tool succeeded.
	Error string `json:"error,omitempty"`
	// MayHaveRun reports whether the tool may have run although there is an error.
	MayHaveRun bool `json:"may_have_run,omitempty"`
}

// NodeResult is what another node did about a stop.
type NodeResult struct {
	Node string `json:"node"`
	// Acknowledged means that nothing more is sent by that node.
	Acknowledged bool         `json:"acknowledged"`
	Ended        int          `json:"ended"`
	MayHaveRun   int          `json:"may_have_run"`
	Tools        []ToolResult `json:"tools,omitempty"`
	// NotSaved is why that node would not be stopped after a restart; empty if it would.
	NotSaved string `json:"not_saved,omitempty"`
	// Took is how long it took to acknowledge.
	Took time.Duration `json:"took,omitempty"`
}

// Report is what a stop did.
type Report struct {
	// Devices are those that were stopped; empty for everything.
	Devices []string `json:"devices,omitempty"`
	// Ended is how many changes were ended before they were sent by this node, and
	// MayHaveRun how many had been sent.
	Ended      int          `json:"ended"`
	MayHaveRun int          `json:"may_have_run"`
	Tools      []ToolResult `json:"tools,omitempty"`
	Nodes      []NodeResult `json:"nodes,omitempty"`
	// NotSaved is why the stop does not survive a restart of this node; empty if it does.
	NotSaved string `json:"not_saved,omitempty"`
	// Time is that of the first order, and Took how long it took until all nodes that
	// acknowledged sent no more changes.
	Time time.Time     `json:"time"`
	Took time.Duration `json:"took"`
}

// Halt stops devices, or everything if there are none. When it returns, this node and the
// nodes that acknowledged send no more changes to them. It works without a disk, without
// other nodes and while many calls are running.
func (s *Stop) Halt(ctx context.Context, by ferrule.Principal, reason string, devices []string) (Report, error) {
	targets := devices
	if len(targets) == 0 {
		targets = []string{""}
	}
	if s.full(devices) {
		return Report{}, ferrule.Errorf(ferrule.Limited, "%d devices are stopped one by one, which is the limit; nothing was stopped", MaxOrders).
			WithHint("stop everything instead: run `ferrule stop` without devices")
	}
	var orders []Order
	var halts []*halt
	for _, device := range targets {
		o, h := s.order(by.String(), reason, device)
		orders, halts = append(orders, o), append(halts, h)
	}
	for _, o := range orders {
		s.record(ferrule.Stopped, o, by)
		s.event(ferrule.WasStopped, o, o.String())
		s.options.Log.Warn("changes are stopped", "device", cmp.Or(o.Device, "all"), "by", o.By, "reason", o.Reason)
	}
	heard := s.announce(ctx, orders, true)
	report := Report{Devices: devices, Time: orders[0].Time}
	for _, h := range halts {
		<-h.drained
		report.Ended += h.ended
		report.MayHaveRun += h.mayRun
		if report.NotSaved == "" { // else do not wait for the disk again
			report.NotSaved = h.notSaved()
		}
	}
	report.Took = time.Since(report.Time)
	for _, h := range halts {
		<-h.tools
		report.Tools = append(report.Tools, h.results...)
	}
	report.Nodes = <-heard
	for _, node := range report.Nodes {
		report.Took = max(report.Took, node.Took)
	}
	// model: stop_ack
	return report, nil
}

// notSaved returns why a stop is not in the file, or "".
func (h *halt) notSaved() string {
	select {
	case err := <-h.saved:
		h.saved <- err // for others who ask
		if err != nil {
			return err.Error()
		}
		return ""
	case <-time.After(saveTime):
		return "the disk does not answer"
	}
}

// full reports whether there is no room for orders about more devices. There is always
// room to stop everything.
func (s *Stop) full(devices []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, more := 0, 0
	for _, o := range s.orders {
		if o.active() && o.Device != "" {
			n++
		}
	}
	for _, device := range devices {
		if !s.orders[place{s.options.Node, device}].active() {
			more++
		}
	}
	return more > 0 && n+more >= MaxOrders
}

// order makes a new order of this node, and applies it.
func (s *Stop) order(by, reason, device string) (Order, *halt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.orders[place{s.options.Node, device}]
	o := Order{Node: s.options.Node, Device: device, Seq: max(now(), known.Seq+1, known.Resumed+1), By: by, Reason: reason, Time: time.Now()}
	// model: stop_set
	return s.enforce(o.clean())
}

// Follow stops a device by its new name if it is stopped by an earlier one: a device keeps
// only its last aliases. Its stop tool is called again.
func (s *Stop) Follow(dev *ferrule.Device) {
	s.mu.Lock()
	var earlier Order
	for _, o := range s.orders {
		if o.active() && o.Device == dev.ID {
			s.mu.Unlock()
			return
		}
		if o.active() && o.Device != "" && o.covers(dev) {
			earlier = o
		}
	}
	s.mu.Unlock()
	if earlier.Device == "" {
		return
	}
	o, _ := s.order(earlier.By, earlier.Reason, dev.ID)
	s.record(ferrule.Stopped, o, ferrule.Principal{Role: ferrule.Gateway, Name: "stop"})
	go s.options.Records.Put(o.key(), o.encode())
}

// Resume ends the stops of devices, or all of them if there are none. It returns what it
// ended. If that cannot be saved, nothing is resumed: this node would be stopped again
// after a restart.
func (s *Stop) Resume(ctx context.Context, by ferrule.Principal, devices []string) ([]string, []NodeResult, error) {
	s.saving.Lock()
	s.mu.Lock()
	var over []Order
	after := maps.Clone(s.orders)
	for at, o := range s.orders {
		if o.active() && (len(devices) == 0 || slices.Contains(devices, o.Device)) {
			// model: stop_resume
			o.Resumed = o.Seq
			over, after[at] = append(over, o), o
		}
	}
	s.mu.Unlock()
	err := s.write(after)
	if s.file == nil {
		err = nil // then the stop is not on the disk either
	}
	if err == nil {
		for _, o := range over {
			s.apply(o)
		}
	}
	s.saving.Unlock()
	if err != nil {
		return nil, nil, ferrule.Errorf(ferrule.Denied, "changes are still stopped, because resuming cannot be saved: %w", err).
			WithHint("check the disk of the data directory, then run `ferrule resume` again")
	}
	var resumed []string
	for _, o := range over {
		s.record(ferrule.Resumed, o, by)
		s.event(ferrule.WasResumed, o, "resumed by "+by.String())
		s.options.Log.Warn("changes are resumed", "device", cmp.Or(o.Device, "all"), "by", by.String())
		if !slices.Contains(resumed, o.Device) {
			resumed = append(resumed, o.Device)
		}
	}
	slices.Sort(resumed)
	return resumed, <-s.announce(ctx, over, false), nil
}

func (s *Stop) event(kind ferrule.EventType, o Order, reason string) {
	s.options.Event(ferrule.Event{Time: time.Now(), Type: kind, Device: cmp.Or(o.Device, ferrule.GatewayID), Reason: reason})
}

// record writes to the journal. Nothing waits for it: the disk may be full or slow.
func (s *Stop) record(phase ferrule.Phase, o Order, by ferrule.Principal) {
	entry := ferrule.Entry{Phase: phase, Time: time.Now(), Principal: by, Device: o.Device, Message: cmp.Or(o.Device, "everything") + " was " + o.String()}
	if phase == ferrule.Resumed {
		entry.Message = cmp.Or(o.Device, "everything") + " is resumed by " + by.String() + "; it was " + o.String()
	}
	if o.Node != s.options.Node {
		entry.Via = o.Node
	}
	go func() {
		if err := s.options.Journal.Append(entry, true); err != nil {
			s.options.Log.Error("not recorded in the journal", "phase", string(phase), "device", cmp.Or(o.Device, "all"), "by", by.String(), "err", err)
		}
	}()
}

// save writes all orders to the file, unless somebody else has done so meanwhile.
func (s *Stop) save() error {
	s.mu.Lock()
	wanted := s.changes
	s.mu.Unlock()
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.saved >= wanted {
		return nil
	}
	s.mu.Lock()
	all, changes := maps.Clone(s.orders), s.changes
	s.mu.Unlock()
	err := s.write(all)
	if err == nil {
		s.saved = changes
	}
	return err
}

// write writes orders to the file. It is called with saving held.
func (s *Stop) write(orders map[place]Order) error {
	if s.file == nil {
		made, _, err := openFile(s.options.Dir)
		if err != nil {
			return err
		}
		if made == nil {
			return errNoSpace
		}
		s.file = made
	}
	list := slices.SortedFunc(maps.Values(orders), func(a, b Order) int {
		return cmp.Or(strings.Compare(a.Device, b.Device), strings.Compare(a.Node, b.Node))
	})
	// model: stop_store
	return s.file.write(list)
}

// ack is an answer of another node. The last one has Done.
type ack struct {
	Ended      int          `json:"ended,omitempty"`
	MayHaveRun int          `json:"may_have_run,omitempty"`
	NotSaved   string       `json:"not_saved,omitempty"`
	Tools      []ToolResult `json:"tools,omitempty"`
	Done       bool         `json:"done,omitempty"`
}

// maxAckTools is how many results an answer has. Failures come first.
const maxAckTools = 12

// announce sends orders to the other nodes, and returns what they answer: each that
// acknowledges within ackTime is waited for until its stop tools have answered.
func (s *Stop) announce(ctx context.Context, orders []Order, wait bool) <-chan []NodeResult {
	nodes, began := s.options.Nodes(), time.Now()
	out := make(chan []NodeResult, 1)
	var mu sync.Mutex
	got := make(map[string]*NodeResult)
	acked, done, unsent := make(map[string]int), make(map[string]int), 0
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTime+toolTime)
	check := make(chan struct{}, 1)
	for _, o := range orders {
		go func() {
			// model: stop_send
			err := s.options.Records.Announce(ctx, o.key(), o.encode(), func(node string, data []byte) {
				var a ack
				if json.Unmarshal(data, &a) != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				r := got[node]
				if r == nil {
					r = &NodeResult{Node: node}
					got[node] = r
				}
				r.Tools = append(r.Tools, a.Tools...)
				r.NotSaved = cmp.Or(ferrule.Clean(a.NotSaved, maxReason), r.NotSaved)
				if a.Done {
					done[node]++
				} else {
					acked[node]++
					r.Ended += a.Ended
					r.MayHaveRun += a.MayHaveRun
				}
				if r.Acknowledged = acked[node] >= len(orders); r.Acknowledged && r.Took == 0 {
					r.Took = time.Since(began)
				}
				select {
				case check <- struct{}{}:
				default:
				}
			})
			if err != nil { // the order is in the records, and written later
				mu.Lock()
				unsent++
				mu.Unlock()
				select {
				case check <- struct{}{}:
				default:
				}
			}
		}()
	}
	go func() {
		limit := time.NewTimer(ackTime)
		defer limit.Stop()
		waiting := true // for nodes that have not answered at all
		complete := func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, node := range nodes {
				if acked[node] < len(orders) && waiting && unsent < len(orders) || acked[node] > 0 && done[node] < len(orders) && wait {
					return false
				}
			}
			return true
		}
		for !complete() && ctx.Err() == nil {
			select {
			case <-check:
			case <-limit.C:
				waiting = false
			case <-ctx.Done():
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, node := range nodes {
			if got[node] == nil {
				got[node] = &NodeResult{Node: node}
			}
		}
		var all []NodeResult
		for _, node := range slices.Sorted(maps.Keys(got)) {
			all = append(all, *got[node])
		}
		out <- all
		time.AfterFunc(ackTime, cancel) // the message is sent even if nobody is waited for
	}()
	return out
}

// answer answers the announcement of another node.
func (s *Stop) answer(key string, value []byte, reply func(data []byte)) {
	if !strings.HasPrefix(key, keyPrefix) {
		return
	}
	o, err := decodeOrder(key, value)
	if err != nil {
		return
	}
	s.hear(key, value) // it may come here before it comes as a record
	s.mu.Lock()
	h := s.halts[o.place()]
	s.mu.Unlock()
	say := func(a ack) {
		if data, err := json.Marshal(a); err == nil {
			reply(data)
		}
	}
	if h == nil || h.seq != o.Seq || !o.active() {
		say(ack{})
		say(ack{Done: true})
		return
	}
	<-h.drained
	say(ack{Ended: h.ended, MayHaveRun: h.mayRun, NotSaved: ferrule.Clean(h.notSaved(), maxReason)})
	<-h.tools
	results := slices.Clone(h.results)
	slices.SortStableFunc(results, func(a, b ToolResult) int { return -strings.Compare(a.Error, b.Error) })
	for i := range results {
		results[i].Error = ferrule.Clean(results[i].Error, maxReason)
	}
	say(ack{Tools: results[:min(len(results), maxAckTools)], Done: true})
}

// hear handles the record of an order.
func (s *Stop) hear(key string, value []byte) {
	o, err := decodeOrder(key, value)
	if err != nil {
		s.options.Log.Error("an order to stop in the shared records cannot be read", "err", err)
		return
	}
	s.mu.Lock()
	known := s.orders[o.place()]
	s.published[o.place()] = o
	// model: stop_hear
	merged, h := s.enforce(o)
	s.mu.Unlock()
	if merged != o { // the record is behind
		go s.options.Records.Put(merged.key(), merged.encode())
	}
	if merged == known {
		return
	}
	phase := ferrule.Stopped
	if !merged.active() {
		phase = ferrule.Resumed
	}
	if known.Seq > 0 || merged.active() {
		s.options.Log.Warn("another node changed what is stopped", "node", o.Node, "device", cmp.Or(o.Device, "all"), "stopped", merged.active(), "by", o.By, "reason", o.Reason)
		s.record(phase, merged, ferrule.Principal{Role: ferrule.Gateway, Name: "stop"})
	}
	if h == nil || h.seq != merged.Seq { // else it is being saved
		h = &halt{saved: make(chan error, 1)}
		go func() { h.saved <- s.save() }()
	}
	go func() {
		if why := h.notSaved(); why != "" {
			s.options.Log.Error("what another node stopped or resumed is not saved here", "node", o.Node, "err", why)
		}
	}()
}

// publishMissing writes orders that the shared records do not have: they were made while
// NATS was unreachable, or the records were lost.
func (s *Stop) publishMissing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, o := range s.orders {
		if s.published[at] != o {
			go s.options.Records.Put(o.key(), o.encode())
		}
	}
}

// callTools calls the stop tools of this node's devices that an order covers. It returns
// after toolTime and a second, even if a call hangs.
func (s *Stop) callTools(o Order) (results []ToolResult) {
	targets := slices.DeleteFunc(s.options.Targets(), func(t ferrule.Target) bool {
		return t.Manifest == nil || t.Manifest.Stop == nil || !o.covers(t.Device)
	})
	for _, target := range targets {
		results = append(results, ToolResult{Device: target.Device.ID, Tool: target.Manifest.Stop.Tool, Error: "the stop tool did not answer; it may have run", MayHaveRun: true})
	}
	slots := make(chan struct{}, maxTools)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, target := range targets {
		action := *target.Manifest.Stop
		wg.Go(func() {
			slots <- struct{}{}
			giveUp := time.AfterFunc(toolTime+time.Second, func() { <-slots })
			ctx, cancel := context.WithTimeout(context.Background(), toolTime)
			defer cancel()
			_, err := s.options.Handle(ctx, &ferrule.Call{
				Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "stop"}, Device: target.Device.ID, Tool: action.Tool, Args: action.Args,
				Timeout: ferrule.Duration(toolTime), Urgent: true,
			})
			if giveUp.Stop() {
				<-slots
			}
			mu.Lock()
			defer mu.Unlock()
			results[i].Error, results[i].MayHaveRun = "", false
			if err != nil {
				e := ferrule.AsError(err)
				results[i].Error, results[i].MayHaveRun = e.Message, e.MayHaveRun()
			}
		})
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		wg.Wait()
	}()
	limit := time.NewTimer(toolTime + time.Second)
	defer limit.Stop()
	select {
	case <-all:
	case <-limit.C:
	}
	mu.Lock()
	defer mu.Unlock()
	sorted := slices.Clone(results) // a late answer may change results
	slices.SortFunc(sorted, func(a, b ToolResult) int { return strings.Compare(a.Device, b.Device) })
	return sorted
}
