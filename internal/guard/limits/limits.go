// Package limits enforces the physical limits of tools: how often they are called, how far
// an argument may move, and how long an output is on.
//
//	Enter  checks the limits, then records on disk that the call may run
//	       ... the call ...
//	Leave  corrects the record: a call that certainly did not run does not count
//
// After a crash between the two, the call counts as run. All callers share the limits,
// because the node that holds the device enforces them. Other nodes know its records, and
// go on from them if the device moves.
package limits

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/records"
)

// maxOutputs limits the outputs of one tool. Callers choose their names.
const maxOutputs = 1024

// Limits holds the state of all outputs. It is safe for concurrent use.
type Limits struct {
	parts  Parts
	file   *records.File
	log    *slog.Logger
	outbox *records.Outbox

	mu      sync.Mutex
	outputs map[string]*output
	counts  map[string]int   // outputs of each tool
	foreign map[string]state // as other nodes last shared them
}

// Parts is what Limits work with.
type Parts struct {
	// File is the path of the file with the state of this node.
	File string
	Node string
	// Shared is nil if there are no other nodes.
	Shared records.Shared
	Log    *slog.Logger
}

// output is one thing that a tool acts on, for example a pin.
type output struct {
	mu sync.Mutex
	state
	mixed bool // calls overlap, so that their order at the device is unknown
}

// Open opens the state in a file, or creates it.
func Open(p Parts) (*Limits, error) {
	file, unreadable, err := records.Open(p.File)
	if err != nil {
		return nil, fmt.Errorf("physical limits: %w", err)
	}
	l := &Limits{
		parts: p, file: file, log: p.Log, outbox: records.NewOutbox(),
		outputs: make(map[string]*output), counts: make(map[string]int), foreign: make(map[string]state),
	}
	now := time.Now()
	for key, data := range file.All() {
		o := &output{}
		if json.Unmarshal(data, &o.state) != nil {
			unreadable++
			continue
		}
		o.restart(now)
		l.outputs[key] = o
		l.counts[toolOf(key)]++
	}
	if unreadable > 0 {
		p.Log.Error(fmt.Sprintf("%d records of physical limits are unreadable; the calls in them no longer count", unreadable), "file", p.File)
	}
	return l, nil
}

// Close closes the file. Calls with limits fail from then on.
func (l *Limits) Close() error { return l.file.Close() }

// The parts of a key are separated by a byte that no ID and no tool has.
const separator = "\x00"

func keyOf(device string, tool *ferrule.Tool, args map[string]any) string {
	by := make(map[string]any, len(tool.Limits.By))
	for _, arg := range tool.Limits.By {
		if value, given := args[arg]; given {
			by[arg] = value
		}
	}
	return device + separator + tool.Name + separator + ferrule.ExactJSON(by)
}

// toolOf returns the part of a key that names the device and the tool.
func toolOf(key string) string { return key[:max(0, strings.LastIndex(key, separator))] }

// find returns the output of a call. It returns nil if the tool has too many.
func (l *Limits) find(dev *ferrule.Device, tool *ferrule.Tool, args map[string]any) (string, *output) {
	key := keyOf(dev.ID, tool, args)
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.outputs[key]; o != nil {
		return key, o
	}
	if l.counts[toolOf(key)] >= maxOutputs {
		return key, nil
	}
	o := &output{}
	for _, alias := range dev.Aliases { // another name does not reset its history
		if was := l.outputs[keyOf(alias, tool, args)]; was != nil {
			was.mu.Lock()
			o.state = was.clone()
			was.mu.Unlock()
			break
		}
	}
	l.outputs[key] = o
	l.counts[toolOf(key)]++
	return key, o
}

// Pass is a call that was admitted.
type Pass struct {
	// OnFor is how long the output may stay on; 0 means without limit.
	OnFor time.Duration

	limits *Limits
	key    string
	output *output
	tool   *ferrule.Tool
	off    bool
	before state
	values map[string]json.Number
}

// Enter admits a call and records it, or returns why it would exceed a limit. Leave must
// be called with the outcome. A call that makes the device safe is always admitted.
func (l *Limits) Enter(call *ferrule.Call) (*Pass, error) {
	tool := call.Target.Tool
	if call.Operation != ferrule.CallTool || tool.Limits == nil {
		return nil, nil
	}
	must := call.Urgent
	key, o := l.find(call.Target.Device, tool, call.DecodedArgs)
	if o == nil {
		return nil, ferrule.Errorf(ferrule.Limited, "%s of %s was called for %d outputs, which is the limit", tool.Name, call.Device, maxOutputs).
			WithHint("use an output that was used before")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	l.goOn(key, o, now)
	p := &Pass{limits: l, key: key, output: o, tool: tool, before: o.clone()}
	p.off = tool.Lease != nil && tool.Lease.SwitchesOff(tool.Name, call.DecodedArgs)
	values, err := o.check(tool, call.DecodedArgs, p.off, now)
	if err != nil && !must {
		return nil, describe(call, err)
	}
	p.values = values
	if on := tool.Limits.OnTime; on != nil && !p.off {
		p.OnFor = o.budget(on, now)
	}
	next := o.clone()
	next.enter(tool, values, p.off, now)
	if err := l.file.Put(key, next); err != nil {
		if !must {
			return nil, ferrule.Errorf(ferrule.Denied, "the call was not sent because it cannot be counted towards its limits: %w", err).
				WithHint("check that the disk of the data directory is not full")
		}
		l.log.Error("a call that makes a device safe is not counted towards its limits", "device", call.Device, "tool", tool.Name, "err", err)
	}
	l.share(key, next)
	o.mixed = o.mixed || o.Running > 0
	o.state = next
	return p, nil
}

// describe makes an error for the caller.
func describe(call *ferrule.Call, e *exceeded) error {
	err := ferrule.Errorf(ferrule.Limited, "%s of %s: %s", call.Tool, call.Device, e.what)
	if e.wait <= 0 {
		return err.WithHint("%s", e.hint)
	}
	return err.WithHint("try again in %v, at %s", e.wait, ferrule.FormatTime(time.Now().Add(e.wait)))
}

// Leave records the outcome of the call. It may be called on nil.
func (p *Pass) Leave(err error) {
	if p == nil {
		return
	}
	ran := err == nil || ferrule.AsError(err).MayHaveRun()
	o := p.output
	o.mu.Lock()
	defer o.mu.Unlock()
	now, alone := time.Now(), !o.mixed
	o.leave(p.tool.Limits, now, ran)
	switch {
	case !alone: // what the device has is unknown; all values that were sent remain possible
	case !ran:
		o.Values, o.On = p.before.Values, p.before.On
	case err == nil:
		for name, v := range p.values {
			o.Values[name] = span{v, v}
		}
		if p.off {
			o.switchOff(now)
		}
	}
	if o.Running == 0 {
		o.mixed = false
	}
	p.limits.store(p.key, o)
}

// Output identifies the output of the call, for SwitchedOff. It may be called on nil.
func (p *Pass) Output() string {
	if p == nil {
		return ""
	}
	return p.key
}

// SwitchedOff records that an output was switched off, perhaps by another tool.
func (l *Limits) SwitchedOff(key string) {
	l.mu.Lock()
	o := l.outputs[key]
	l.mu.Unlock()
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.On.IsZero() && o.Running == 0 {
		o.switchOff(time.Now())
		l.store(key, o)
	}
}

// store writes the state after a call. If that fails, the state from before the call
// stays on disk, in which the call counts as run.
func (l *Limits) store(key string, o *output) {
	l.share(key, o.state)
	if err := l.file.Put(key, o.state); err != nil {
		device, rest, _ := strings.Cut(key, separator)
		tool, _, _ := strings.Cut(rest, separator)
		l.log.Error("outcome not counted towards physical limits", "device", device, "tool", tool, "err", err)
	}
}
