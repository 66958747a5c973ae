// Package lease undoes calls whose owner wants them undone: when their time is up, when the
// caller's session is gone, or when the node that holds the device has ended.
//
//	Enter ──▶ record on disk, and shared with other nodes ──▶ the call ──▶ leave
//	                │
//	      time is up, session gone, node ended, device moved here
//	                ▼
//	              due ──▶ the undoing call, until it is confirmed ──▶ record deleted
//
// A lease is identified by the call that undoes it, so another call that is undone in the
// same way renews it. While a lease of a device is due, other changes of that device wait.
// Ending too early is the safe direction: in doubt, a lease is due.
package lease

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/records"
)

// Parts is what a Keeper works with.
type Parts struct {
	// File is the path of the file with the leases of this node.
	File string
	Node string
	// Boot identifies this run of the node. Its sessions begin with it and a hyphen.
	Boot string
	// Handle is the pipeline.
	Handle ferrule.Handler
	// SwitchedOff is called with the Output of a lease that ended.
	SwitchedOff func(output string)
	// Alive reports whether another node is alive.
	Alive func(node string) bool
	// Shared is nil if there are no other nodes.
	Shared records.Shared
	Log    *slog.Logger
}

// record is a lease as it is stored and shared.
type record struct {
	// ID changes with each renewal.
	ID      string `json:"id"`
	Node    string `json:"node"` // that held the device
	Device  string `json:"device"`
	Address string `json:"address"` // of the hardware
	Tool    string `json:"tool"`
	// Undo and Args are the call that ends the lease.
	Undo   string          `json:"undo"`
	Args   json.RawMessage `json:"args"`
	Output string          `json:"output,omitempty"`
	// Session is that of the caller, at the node Via if that is another one.
	Session string    `json:"session,omitempty"`
	Via     string    `json:"via,omitempty"`
	Until   time.Time `json:"until"`
	// Ended is set if another node has ended the lease.
	Ended bool `json:"ended,omitempty"`
}

// lease is a record that this node has to end.
type lease struct {
	record
	timer    *time.Timer
	inFlight int    // calls that renew it
	renewals int    // counts what makes an earlier end void
	why      string // it is due; empty if it is not
	ending   bool   // a goroutine is ending it
	failed   error  // of the last attempt to end it
	refused  int    // how often the device has answered that it does not
	lost     bool   // it was reported that other hardware has the ID of its device
}

// store is what a Keeper needs of a *records.File.
type store interface {
	All() map[string]json.RawMessage
	Put(key string, value any) error
	Delete(key string) error
	Close() error
}

// Keeper keeps the leases of the devices that this node holds. It is safe for concurrent
// use. It ends leases while Run runs.
type Keeper struct {
	parts Parts
	file  store

	// writing orders changes of the file, and what a lease is about changes with it only. It
	// is taken before mu, which is never held while a file is written: a disk that hangs
	// must not block calls without a lease, nor the fleet.
	writing sync.Mutex

	mu      sync.Mutex
	running context.Context // nil unless Run runs
	outbox  *records.Outbox
	work    sync.WaitGroup
	leases  map[string]*lease
	foreign map[string]record          // of other nodes
	unheard map[string]bool            // leases of an earlier run that other nodes may not know
	devices map[string]*ferrule.Device // of this node, online; by ID and earlier IDs
	gone    map[string]time.Time       // sessions of this run that have ended
	changed chan struct{}              // closed when any of it changes
}

// Open opens the leases of a node. What an earlier run left behind is due.
func Open(p Parts) (*Keeper, error) {
	file, unreadable, err := records.Open(p.File)
	if err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	k := &Keeper{
		parts: p, file: file, leases: make(map[string]*lease), foreign: make(map[string]record), unheard: make(map[string]bool),
		devices: make(map[string]*ferrule.Device), gone: make(map[string]time.Time), changed: make(chan struct{}), outbox: records.NewOutbox(),
	}
	for key, data := range file.All() {
		r, ok := parseRecord(data)
		if !ok || r.key() != key {
			unreadable++
			continue
		}
		k.leases[key] = &lease{record: r, why: "the gateway was restarted"}
		k.unheard[key] = true
	}
	if unreadable > 0 {
		p.Log.Error(fmt.Sprintf("%d leases are unreadable and cannot be ended: outputs may still be on; check your devices", unreadable), "file", p.File)
	}
	return k, nil
}

// Close closes the file. Calls with a lease fail from then on.
func (k *Keeper) Close() error { return k.file.Close() }

// parseRecord reads a record of a file or of another node.
func parseRecord(data []byte) (r record, ok bool) {
	if json.Unmarshal(data, &r) != nil || r.ID == "" || ferrule.CheckID(r.Device) != nil || r.Undo == "" || len(r.Undo) > ferrule.MaxToolName {
		return r, false
	}
	return r, decodeArgs(r.Args) != nil
}

// decodeArgs decodes an object; nil if it is none. Numbers keep their digits.
func decodeArgs(text []byte) (args map[string]any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&args) != nil {
		return nil
	}
	return args
}

// key identifies what is undone.
func (r *record) key() string { return keyOf(r.Device, r.Undo, decodeArgs(r.Args)) }

func keyOf(device, undo string, args map[string]any) string {
	sum := sha256.Sum256([]byte(device + "\x00" + undo + "\x00" + ferrule.ExactJSON(args)))
	return hex.EncodeToString(sum[:16])
}

// wake reports a change to those who wait. It is called with mu held.
func (k *Keeper) wake() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Enter records the lease of a call before it is sent. At most caps the time of the lease,
// unless it is 0; output is passed to SwitchedOff. leave must be called with the outcome.
func (k *Keeper) Enter(call *ferrule.Call, atMost time.Duration, output string) (leave func(error), err error) {
	tool := call.Target.Tool
	if call.Urgent || call.Operation != ferrule.CallTool || tool.Lease == nil {
		return func(error) {}, nil
	}
	if tool.Lease.SwitchesOff(tool.Name, call.DecodedArgs) { // never refused
		args, err := tool.Lease.Then.For(call.DecodedArgs)
		if err != nil { // it is unknown which lease it ends
			return func(error) {}, nil
		}
		return k.enterOff(keyOf(call.Target.Device.ID, tool.Lease.Then.Tool, args)), nil
	}
	r, err := k.recordOf(call, output)
	if err != nil {
		return nil, err
	}
	length := time.Duration(tool.Lease.For)
	if atMost > 0 {
		length = min(length, atMost)
	}
	r.Until = time.Now().Add(length)
	leave, shared, err := k.renew(r, length)
	if shared != nil {
		select {
		case <-shared:
		// model: lease_arm_alone
		case <-time.After(shareTime):
		}
	}
	return leave, err
}

// shareTime is how long a call waits until other nodes know its lease. It is sent anyway:
// this node ends the lease after a restart.
const shareTime = 300 * time.Millisecond

// recordOf returns the record of a call's lease.
func (k *Keeper) recordOf(call *ferrule.Call, output string) (record, error) {
	tool, dev := call.Target.Tool, call.Target.Device
	then := tool.Lease.Then
	args, err := then.For(call.DecodedArgs)
	if err != nil {
		return record{}, ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s on %s: %w", tool.Name, dev.ID, err)
	}
	undo := call.Target.Manifest.Tool(then.Tool)
	if undo == nil || undo.Quarantine != "" {
		return record{}, ferrule.Errorf(ferrule.Denied, "%s of %s cannot be used: the tool %s, which undoes it, cannot be called", tool.Name, dev.ID, then.Tool).
			WithHint("correct its lease in the overlay")
	}
	if undo.Check != nil {
		if wrong := undo.Check(args); len(wrong) > 0 {
			return record{}, ferrule.Errorf(ferrule.Invalid, "%s of %s could not be undone with these arguments: %s", tool.Name, dev.ID, strings.Join(wrong, "; "))
		}
	}
	text, err := json.Marshal(args)
	if err != nil {
		return record{}, ferrule.Errorf(ferrule.Internal, "encoding a lease failed: %w", err)
	}
	via := call.Via
	if via == k.parts.Node { // its device moved here while it was on its way
		via = ""
	}
	r := record{
		ID: rand.Text(), Node: k.parts.Node, Device: dev.ID, Address: dev.Address, Tool: tool.Name, Undo: then.Tool, Args: text,
		Output: output, Session: call.Session, Via: via,
	}
	if all, err := json.Marshal(r); err != nil || len(all) > maxRecord {
		return record{}, ferrule.Errorf(ferrule.Invalid, "%s of %s could not be undone by other nodes: the arguments of %s, which undoes it, are too long (%d bytes)", tool.Name, dev.ID, then.Tool, len(text)).
			WithHint("use shorter arguments, about %d bytes in all", maxRecord/2)
	}
	return r, nil
}

// maxRecord is the size of a record that can be shared, less that of the fields that are
// set later.
const maxRecord = 4000

// maxRefused is how often a device may refuse to undo a call before its other changes go on.
// Otherwise one call with an argument that the device does not accept would lock it.
const maxRefused = 3

// maxOfDevice is the number of leases of one device at a time. Callers choose arguments.
const maxOfDevice = 64

// Await waits until no lease of the device is due: what it undoes comes first. Calls that
// change nothing or switch something off do not wait.
func (k *Keeper) Await(ctx context.Context, call *ferrule.Call) error {
	tool := call.Target.Tool
	if tool.Effect == ferrule.Reads || call.Urgent || tool.Lease != nil && tool.Lease.SwitchesOff(tool.Name, call.DecodedArgs) {
		return nil
	}
	for {
		k.mu.Lock()
		var undo string
		var failed error
		for _, l := range k.leases {
			if l.why != "" && l.refused < maxRefused && k.isFor(l, call.Target.Device) {
				undo, failed = l.Undo, l.failed
				break
			}
		}
		changed := k.changed
		k.mu.Unlock()
		if undo == "" {
			return nil
		}
		call.Report(ferrule.Progress{Message: fmt.Sprintf("waiting for %s, which undoes an earlier call of %s", undo, call.Device)})
		select {
		case <-changed:
		case <-ctx.Done():
			return notConfirmed(ctx, call, undo, failed)
		}
	}
}

// checkCount returns an error if a device has too many leases for one more.
func (k *Keeper) checkCount(key, device string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leases[key] != nil {
		return nil
	}
	n := 0
	for _, l := range k.leases {
		if l.Device == device {
			n++
		}
	}
	if n >= maxOfDevice {
		return ferrule.Errorf(ferrule.Limited, "%s has %d outputs on that are to be switched off again, which is the limit; nothing was sent", device, n).
			WithHint("switch some of them off first")
	}
	return nil
}

// notConfirmed returns the error of a call that waited in vain. Failed is that of the last
// attempt to undo the earlier call, or nil.
func notConfirmed(ctx context.Context, call *ferrule.Call, undo string, failed error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for %s of %s, which undoes an earlier call", undo, call.Device)
	}
	e := ferrule.Errorf(ferrule.Busy, "%s of %s must run first, to undo an earlier call, and was not confirmed yet", undo, call.Device).
		WithHint("check that the device works; `ferrule audit` shows the attempts")
	if failed != nil {
		last := ferrule.AsError(failed)
		e.Message += ": " + last.Message
		e.Hint = cmp.Or(last.Hint, e.Hint)
	}
	return e
}

// isFor reports whether a lease is for a device, not for other hardware that had its ID. It
// is called with mu held.
func (k *Keeper) isFor(l *lease, dev *ferrule.Device) bool {
	if l.Address != dev.Address {
		return false
	}
	online := k.devices[l.Device]
	return l.Device == dev.ID || online != nil && online.ID == dev.ID
}

// online reports whether the hardware of a lease is online. It is called with mu held.
func (k *Keeper) online(r *record) bool {
	dev := k.devices[r.Device]
	return dev != nil && dev.Address == r.Address
}

// renew starts or renews a lease: it is on disk when renew returns, and shared when the
// channel is closed.
func (k *Keeper) renew(r record, length time.Duration) (leave func(error), shared <-chan struct{}, err error) {
	key := r.key()
	k.writing.Lock()
	defer k.writing.Unlock()
	if err := k.checkCount(key, r.Device); err != nil {
		return nil, nil, err
	}
	// model: lease_arm
	if err := k.file.Put(key, r); err != nil {
		return nil, nil, ferrule.Errorf(ferrule.Denied, "the call was not sent because its lease cannot be recorded: %w", err).
			WithHint("check that the disk of the data directory is not full")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[key]
	var before *record
	var why string // it is due
	if l == nil {
		l = &lease{}
		k.leases[key] = l
	} else {
		was := l.record
		before, why = &was, l.why
	}
	l.record, l.why, l.failed, l.refused = r, "", nil, 0
	l.inFlight++
	l.renewals++
	shared = k.share(key, r) // the answer that its caller is gone must find the lease
	k.start(key, l, length)
	if r.Via == "" && k.isGone(r.Session) {
		k.due(key, l, "the caller's session has ended")
	}
	return func(err error) { k.left(key, r, before, why, err) }, shared, nil
}

// start sets the timer of a lease. It is called with mu held.
func (k *Keeper) start(key string, l *lease, length time.Duration) {
	if l.timer != nil {
		l.timer.Stop()
	}
	id := l.ID
	l.timer = time.AfterFunc(length, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l := k.leases[key]; l != nil && l.ID == id {
			k.due(key, l, "its time is up")
		}
	})
}

// left is called when a call that renewed a lease has ended. A call that certainly did
// not run leaves the lease as it was before. If the lease became due meanwhile, it is ended
// once more: the call may have run after the end.
func (k *Keeper) left(key string, r record, before *record, why string, err error) {
	ran := err == nil || ferrule.AsError(err).MayHaveRun()
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	l := k.leases[key]
	if l == nil { // a lease with a call under way is not dropped
		k.mu.Unlock()
		return
	}
	l.inFlight--
	dropped, restored := false, false
	switch {
	case l.why != "":
		if ran {
			l.renewals++ // an end that is under way may have come before the call
		}
		k.end(key, l)
	case ran || l.ID != r.ID || l.inFlight > 0:
	case before == nil:
		k.drop(key, l)
		dropped = true
	default:
		l.record = *before
		restored = true
		if why != "" { // its end is not confirmed
			k.due(key, l, why)
		} else {
			k.start(key, l, time.Until(before.Until))
		}
	}
	k.mu.Unlock()
	switch {
	case dropped:
		k.erase(key, &r)
	case restored:
		k.put(key, *before)
	}
}

// enterOff returns the leave of a call that switches off by itself. If it succeeds and
// nothing was switched on meanwhile, there is nothing left to undo.
func (k *Keeper) enterOff(key string) (leave func(error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[key]
	if l == nil || l.inFlight > 0 {
		return func(error) {}
	}
	id := l.ID
	return func(err error) {
		if err == nil {
			k.dropUnchanged(key, id)
		}
	}
}

// dropUnchanged drops a lease unless it was renewed.
func (k *Keeper) dropUnchanged(key, id string) {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	l := k.leases[key]
	unchanged := l != nil && l.ID == id && l.inFlight == 0
	if unchanged {
		k.drop(key, l)
	}
	k.mu.Unlock()
	if unchanged {
		k.erase(key, &l.record)
	}
}

// put stores a changed lease. If that fails, what is on disk ends the lease as well. It is
// called with writing held, and without mu.
func (k *Keeper) put(key string, r record) {
	if err := k.file.Put(key, r); err != nil {
		k.parts.Log.Error("lease not stored", "device", r.Device, "tool", r.Tool, "err", err)
	}
	k.share(key, r)
}

// drop forgets a lease that has ended. It is called with both locks held. The caller has to
// erase it.
func (k *Keeper) drop(key string, l *lease) {
	if l.timer != nil {
		l.timer.Stop()
	}
	delete(k.leases, key)
	k.unshare(key, l.record)
	k.wake()
}

// erase deletes a dropped lease from the disk. It is called with writing held, and without
// mu.
func (k *Keeper) erase(key string, r *record) {
	if err := k.file.Delete(key); err != nil { // it is ended once more after a restart
		k.parts.Log.Error("ended lease not deleted", "device", r.Device, "tool", r.Tool, "err", err)
	}
}

// Forget drops the leases of a device that its owner forgets, under any of its IDs: it
// cannot be called any more, and another device may get the ID.
func (k *Keeper) Forget(ids ...string) {
	k.mu.Lock()
	all := make(map[string]record)
	for key, l := range k.leases {
		if slices.Contains(ids, l.Device) {
			all[key] = l.record
		}
	}
	k.mu.Unlock()
	for key, r := range all {
		k.parts.Log.Error("the device was forgotten, so its lease is not ended: the output may still be on", "device", r.Device, "tool", r.Undo, "address", r.Address)
		k.dropUnchanged(key, r.ID)
	}
}

// SessionEnded makes the leases of a session of this run due.
func (k *Keeper) SessionEnded(session string) {
	if session == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for id, at := range k.gone {
		if now.Sub(at) > goneTime {
			delete(k.gone, id)
		}
	}
	k.gone[session] = now
	for key, l := range k.leases {
		if l.Via == "" && l.Session == session {
			k.due(key, l, "the caller's session has ended")
		}
	}
	for key, r := range k.foreign {
		k.tellGone(key, r)
	}
}

// goneTime is how long an ended session is remembered: longer than a call takes.
const goneTime = 15 * time.Minute

// isGone reports whether a session of this node has ended. It is called with mu held.
func (k *Keeper) isGone(session string) bool {
	if session == "" {
		return false
	}
	_, gone := k.gone[session]
	return gone || !strings.HasPrefix(session, k.parts.Boot+"-")
}
