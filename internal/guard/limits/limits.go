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
	"crypto/sha256"
	"encoding/hex"
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

// maxOutput is the length from which the arguments that identify an output are hashed.
const maxOutput = 256

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

// output is one thing that a tool acts on, for example a pin. After a rename of its
// device it is known by several keys.
type output struct {
	mu sync.Mutex // taken before that of Limits
	state
	key     string // under which it is stored; empty if it is not
	mixed   bool   // calls overlap, so that their order at the device is unknown
	dropped bool   // it has no key any more
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
		o := &output{key: key}
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
	output := ferrule.ExactJSON(by)
	if len(output) > maxOutput { // so that it can be shared
		sum := sha256.Sum256([]byte(output))
		output = hex.EncodeToString(sum[:])
	}
	return device + separator + tool.Name + separator + output
}

// toolOf returns the part of a key that names the device and the tool.
func toolOf(key string) string { return key[:max(0, strings.LastIndex(key, separator))] }

// find returns the output of a call. It returns nil if the tool has too many.
func (l *Limits) find(dev *ferrule.Device, tool *ferrule.Tool, args map[string]any) (string, *output) {
	key := keyOf(dev.ID, tool, args)
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.outputs[key]
	for _, alias := range dev.Aliases { // another name does not reset its history
		if o == nil {
			o = l.outputs[keyOf(alias, tool, args)]
		}
	}
	if o == nil {
		if l.counts[toolOf(key)] >= maxOutputs {
			return key, nil
		}
		o = &output{}
	}
	if l.outputs[key] == nil {
		l.outputs[key] = o
		l.counts[toolOf(key)]++
	}
	return key, o
}

// lock returns the output of a call like find, with its lock held.
func (l *Limits) lock(call *ferrule.Call) (string, *output) {
	for {
		key, o := l.find(call.Target.Device, call.Target.Tool, call.DecodedArgs)
		if o == nil {
			return key, nil
		}
		o.mu.Lock()
		if !o.dropped {
			return key, o
		}
		o.mu.Unlock()
	}
}

// dropUnused forgets an output that no admitted call has used. It is called with the lock
// of the output held.
func (l *Limits) dropUnused(o *output) {
	if o.key != "" || !o.Updated.IsZero() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, same := range l.outputs {
		if same == o {
			delete(l.outputs, other)
			l.counts[toolOf(other)]--
		}
	}
	o.dropped = true
}

// Pass is a call that was admitted.
type Pass struct {
	// OnFor is how long the output may stay on; 0 means without limit.
	OnFor time.Duration

	limits *Limits
	key    string // of the output, when the call was admitted
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
	key, o := l.lock(call)
	if o == nil {
		if must {
			l.log.Error(notCounted, "device", call.Device, "tool", tool.Name, "err", "the tool has too many outputs")
			return nil, nil
		}
		return nil, ferrule.Errorf(ferrule.Limited, "%s of %s was called for %d outputs, which is the limit", tool.Name, call.Device, maxOutputs).
			WithHint("use an output that was used before")
	}
	defer o.mu.Unlock()
	now := time.Now()
	l.goOn(key, o, now)
	p := &Pass{limits: l, key: key, output: o, tool: tool, before: o.clone()}
	p.off = tool.Lease != nil && tool.Lease.SwitchesOff(tool.Name, call.DecodedArgs)
	values, err := o.check(tool, call.DecodedArgs, p.off, now)
	if err != nil && !must {
		l.dropUnused(o)
		return nil, describe(call, err)
	}
	p.values = values
	if on := tool.Limits.OnTime; on != nil && !p.off {
		p.OnFor = o.budget(on, now)
	}
	next := o.clone()
	next.enter(tool, values, p.off, now)
	stored := l.file.Put(key, next)
	if stored != nil {
		if !must {
			l.dropUnused(o)
			return nil, ferrule.Errorf(ferrule.Denied, "the call was not sent because it cannot be counted towards its limits: %w", stored).
				WithHint("check that the disk of the data directory is not full")
		}
		l.log.Error(notCounted, "device", call.Device, "tool", tool.Name, "err", stored)
	}
	if stored == nil || o.key == "" {
		l.move(key, o)
	}
	l.share(key, next)
	o.mixed = o.mixed || o.Running > 0
	o.state = next
	return p, nil
}

const notCounted = "a call that makes a device safe is not counted towards its limits"

// move notes where an output was stored last. What an earlier name of its device has is
// out of date. It is called with the lock of the output held.
func (l *Limits) move(key string, o *output) {
	was := o.key
	if o.key = key; was == key || was == "" {
		return
	}
	if err := l.file.Delete(was); err != nil { // it is not used
		l.log.Warn("physical limits of a renamed device are stored twice", "err", err)
	}
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
	p.limits.store(o)
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
		l.store(o)
	}
}

// store writes the state after a call. If that fails, the state from before the call
// stays on disk, in which the call counts as run.
func (l *Limits) store(o *output) {
	l.share(o.key, o.state)
	if err := l.file.Put(o.key, o.state); err != nil {
		device, rest, _ := strings.Cut(o.key, separator)
		tool, _, _ := strings.Cut(rest, separator)
		l.log.Error("outcome not counted towards physical limits", "device", device, "tool", tool, "err", err)
	}
}
