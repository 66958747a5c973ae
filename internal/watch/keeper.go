package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/records"
)

// Parts is what a Keeper works with.
type Parts struct {
	// File is the path of the file with the watches and marks of this node.
	File string
	Node string
	// Shared is nil if this is the only node.
	Shared records.Synced
	// Handle is the pipeline.
	Handle ferrule.Handler
	// Owner returns the owner of a watch as it is authenticated now. The error says why the
	// watch must not act, for example because its token was revoked.
	Owner func(w *Watch) (ferrule.Principal, error)
	// Sees reports whether a caller may know a device.
	Sees func(who ferrule.Principal, device string) bool
	// Changes reports whether the journal has an intent before a call is sent. It may be nil.
	Changes func(a *Action) bool
	// Lost returns what became of calls that an earlier run has left: nil for each that has
	// run, else the error. If it is nil, that is not known.
	Lost    func(ctx context.Context, calls []LostCall) []error
	Silence condition.Silence
	// Updated is called when the state of a watch has changed. It must not block.
	Updated func(id string)
	// Event passes on an event of a device of this node. It must not block.
	Event func(e ferrule.Event)
	// Send delivers notices, as SetSenders says.
	Send Senders
	Log  *slog.Logger
}

// Senders deliver notices, by the names in Watch.Notify. What is missing is not configured.
type Senders map[string]func(ctx context.Context, n Notice) error

// Keeper keeps the watches, and evaluates those of the devices of this node. It is safe for
// concurrent use. It acts while Run runs.
type Keeper struct {
	parts   Parts
	file    *records.File
	outbox  *records.Outbox
	firings chan *firing
	notes   chan *note
	work    sync.WaitGroup

	// changing is held while a watch changes, in memory and in the file. It comes before mu.
	changing sync.Mutex
	// saving orders writes of marks to the file. It comes before mu.
	saving sync.Mutex

	mu      sync.Mutex
	send    Senders // never changed in place
	synced  bool    // the records of other nodes are known
	watches map[string]*watched
	exact   map[string]map[string]*watched // live watches of one device, by device and ID
	wide    map[string]*watched            // live watches of many devices
	devices map[string]*device             // of this node
	marks   map[string]*mark
	dirty   map[string]bool // marks that are not in the file
	timed   map[*follower]bool
	follows int                       // followers of all watches
	owned   map[ferrule.Principal]int // those of agents, by account
	crowded bool                      // the log says that there are too many
	lost    bool                      // marks of other nodes did not fit
	queued  map[ferrule.Principal]int // notices that wait, by account
	unseen  time.Time                 // since when nothing was evaluated, before this run
	calling int
	byOwner map[ferrule.Principal]int // calls under way, by account
}

// watched is a watch, with what is known about it here.
type watched struct {
	Watch
	selector  condition.Selector
	followers map[string]*follower // by device
	calling   bool                 // a call is under way
	blocked   time.Time            // the limits allow no call before
	calls     []int64              // times of calls for devices that are gone, as in mark.Calls
	failed    string               // the last notice that was not delivered
}

// device is a device of this node.
type device struct {
	dev     *ferrule.Device
	conn    condition.Connection
	signals map[string][]*follower
	events  []*follower
}

// Open returns the watches in a file.
func Open(p Parts) (*Keeper, error) {
	file, unreadable, err := records.Open(p.File)
	if err != nil {
		return nil, fmt.Errorf("opening the watches: %w", err)
	}
	k := &Keeper{
		parts: p, send: p.Send, file: file, outbox: records.NewOutbox(), firings: make(chan *firing, maxFirings), notes: make(chan *note, maxNotes), synced: p.Shared == nil,
		watches: make(map[string]*watched), exact: make(map[string]map[string]*watched), wide: make(map[string]*watched),
		devices: make(map[string]*device), marks: make(map[string]*mark), dirty: make(map[string]bool), timed: make(map[*follower]bool),
		byOwner: make(map[ferrule.Principal]int), owned: make(map[ferrule.Principal]int),
		queued: make(map[ferrule.Principal]int),
	}
	all := file.All()
	json.Unmarshal(all[seenKey], &k.unseen) // zero if it is missing
	for key, data := range all {
		if id, ok := strings.CutPrefix(key, watchKey); ok {
			w, err := parse(id, data)
			if err != nil {
				unreadable++
				continue
			}
			k.set(w)
		} else if id, ok := strings.CutPrefix(key, markKey); ok {
			m, err := parseMark(id, data)
			if err != nil {
				unreadable++
				continue
			}
			k.marks[id] = &m
		}
	}
	for _, m := range k.marks {
		if w := k.watches[m.Watch]; w != nil {
			w.keepCalls(m)
		}
	}
	if unreadable > 0 {
		p.Log.Warn("some watches cannot be read and do nothing; to see the others, run `ferrule watch list`", "file", p.File, "lines", unreadable)
	}
	k.prune(time.Now())
	return k, nil
}

// SetSenders changes how notices are delivered from now on.
func (k *Keeper) SetSenders(s Senders) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.send = s
}

// sender returns how notices of a channel are delivered; nil if it is not configured.
func (k *Keeper) sender(channel string) func(context.Context, Notice) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.send[channel]
}

// Close closes the file. Calls of watches fail from then on.
func (k *Keeper) Close() error { return k.file.Close() }

// Connect makes the watches those of all nodes. It is called once, before the cluster runs.
func (k *Keeper) Connect() {
	if k.parts.Shared == nil {
		return
	}
	k.parts.Shared.Watch(func(key string, value []byte) {
		if id, ok := strings.CutPrefix(key, watchKey); ok && value != nil {
			k.hear(id, value)
		} else if id, ok := strings.CutPrefix(key, markKey); ok && value != nil {
			k.hearMark(id, value)
		}
	})
	k.parts.Shared.OnSync(k.shareMissing)
}

// hear handles a watch of another node, or of this one as it comes back.
func (k *Keeper) hear(id string, value []byte) {
	w, err := parse(id, value)
	if err == nil && w.Version > uint64(time.Now().Add(maxSkew).UnixMicro()) {
		err = fmt.Errorf("it was changed in the future; check the clocks of the nodes")
	}
	if err != nil {
		k.parts.Log.Warn("ignored a watch of another node", "err", err)
		return
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	k.mu.Lock()
	known := k.watches[id]
	newer := known == nil && len(k.watches) < maxKept || known != nil && w.Version > known.Version
	k.mu.Unlock()
	if !newer {
		return
	}
	if err := k.file.Put(watchKey+id, w); err != nil {
		k.parts.Log.Error("a watch of another node is not saved; after a restart this node learns it again", "err", err)
	}
	k.mu.Lock()
	k.set(w)
	k.mu.Unlock()
	k.parts.Updated(id)
}

// maxSkew is how far the clocks of nodes may differ.
const maxSkew = 10 * time.Minute

// shareMissing shares what other nodes may not know, and claims the devices of this node.
func (k *Keeper) shareMissing() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.synced = true
	for id, w := range k.watches {
		if data, err := json.Marshal(&w.Watch); err == nil {
			k.outbox.Put(watchKey+id, data) // an older version than theirs changes nothing
		}
	}
}

// maxKept limits watches with removed ones.
const maxKept = MaxWatches + 2000

// removedAge is how long removed watches are kept, far longer than nodes are off.
const removedAge = 30 * 24 * time.Hour

// prune forgets watches that were removed, or have expired, long ago. It is called with
// changing held, or before the keeper is in use.
func (k *Keeper) prune(now time.Time) {
	k.mu.Lock()
	var old []string
	for id, w := range k.watches {
		changed := time.UnixMicro(int64(w.Version))
		if w.Removed && now.Sub(changed) > removedAge || !w.Expires.IsZero() && now.Sub(w.Expires) > removedAge {
			old = append(old, id)
			k.drop(id)
		}
	}
	var marks []string
	for key := range k.marks {
		if id, _ := splitMark(key); k.watches[id] == nil && k.synced || k.watches[id] != nil && k.watches[id].Removed {
			marks = append(marks, key)
			delete(k.marks, key)
			delete(k.dirty, key)
		}
	}
	k.mu.Unlock()
	for _, id := range old {
		k.file.Delete(watchKey + id)
		k.share(watchKey+id, nil)
	}
	for _, key := range marks {
		k.file.Delete(markKey + key)
		k.share(markKey+key, nil)
	}
}

// share shares a value in the background; nil deletes it.
func (k *Keeper) share(key string, value []byte) {
	if k.parts.Shared != nil {
		k.outbox.Put(key, value)
	}
}

// set makes a watch count. It is called with mu held, or before the keeper is in use.
func (k *Keeper) set(w Watch) {
	before := k.watches[w.ID]
	next := &watched{Watch: w, followers: make(map[string]*follower)}
	var err error
	if !w.Removed {
		next.selector, err = condition.ParseSelector(w.Condition.Device)
	}
	if before != nil {
		next.calling, next.calls = before.calling, before.calls
		k.unfollow(before)
		if !sameCondition(&before.Condition, &w.Condition) { // its next hit is an edge
			for _, m := range k.marks {
				if m.Watch == w.ID {
					m.Active = false
					k.dirty[m.key()] = true
				}
			}
		}
	}
	k.watches[w.ID] = next
	if err != nil || !w.live(time.Now()) {
		return
	}
	id := next.selector.ID()
	if id == "" {
		k.wide[w.ID] = next
	} else {
		if k.exact[id] == nil {
			k.exact[id] = make(map[string]*watched)
		}
		k.exact[id][w.ID] = next
		if d := k.devices[id]; d != nil {
			k.follow(next, d)
			return
		}
	}
	for _, d := range k.devices {
		if next.selector.Matches(d.dev) {
			k.follow(next, d)
		}
	}
}

func sameCondition(a, b *condition.Condition) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// unfollow ends the evaluation of a watch. It is called with mu held.
func (k *Keeper) unfollow(w *watched) {
	for _, f := range w.followers {
		k.detach(f)
	}
	delete(k.wide, w.ID)
	if of := k.exact[w.Condition.Device]; of != nil {
		if delete(of, w.ID); len(of) == 0 {
			delete(k.exact, w.Condition.Device)
		}
	}
}

// drop forgets a watch. It is called with mu held.
func (k *Keeper) drop(id string) {
	k.unfollow(k.watches[id])
	delete(k.watches, id)
}

// Status is a watch with what became of it.
type Status struct {
	Watch
	// Devices is how many devices are evaluated.
	Devices int `json:"devices"`
	// Unmeasured is how many of them have sent no value of the signal since the watch was set,
	// or since the gateway started.
	Unmeasured int `json:"unmeasured,omitempty"`
	// Now is the last known value of a new watch, if it meets the condition already: the watch
	// fires at the next sample that does.
	Now *condition.Hit `json:"now,omitempty"`
	// Active lists devices for which the condition holds since it was met.
	Active []string `json:"active,omitempty"`
	Hits   uint64   `json:"hits"`
	Held   uint64   `json:"held,omitempty"`
	// Last is the newest hit. Outcome is what became of it, or of an earlier one whose call is
	// under way or ended later. Then NotCalled is why there was no call for the newest.
	Last      *condition.Hit `json:"last,omitempty"`
	Outcome   *Outcome       `json:"outcome,omitempty"`
	NotCalled string         `json:"not_called,omitempty"`
	// Gaps are the newest time ranges in which a hit may have been missed.
	Gaps []ferrule.Gap `json:"gaps,omitempty"`
	// Undelivered says why the last notice was not delivered.
	Undelivered string `json:"undelivered,omitempty"`
	Expired     bool   `json:"expired,omitempty"`
}

// maxShown limits the devices and gaps of a Status.
const maxShown = 10

// seen returns the devices of watches that a reader may see now. A condition on many devices
// also selects devices that are hidden from its owner. Of a device that is gone, only people
// see what the watch did.
func (k *Keeper) seen(who ferrule.Principal, only func(*Watch) bool) map[string]bool {
	all := make(map[string]bool)
	k.mu.Lock()
	for _, w := range k.watches {
		if only(&w.Watch) {
			for device := range w.followers {
				all[device] = true
			}
		}
	}
	gone := make(map[string]bool)
	for _, m := range k.marks {
		if w := k.watches[m.Watch]; w != nil && only(&w.Watch) {
			all[m.Device], gone[m.Device] = true, k.devices[m.Device] == nil
		}
	}
	k.mu.Unlock()
	for device := range all { // without the lock: the fleet has its own
		all[device] = k.parts.Sees(who, device) || gone[device] && who.Role == ferrule.Person && who.Devices == ""
	}
	return all
}

// status is called with mu held.
func (k *Keeper) status(w *watched, seen map[string]bool, now time.Time) Status {
	s := Status{Watch: w.Watch, Undelivered: w.failed, Expired: w.expired(now)}
	for _, device := range slices.Sorted(maps.Keys(w.followers)) {
		if !seen[device] {
			continue
		}
		f := w.followers[device]
		s.Devices++
		s.Gaps = append(s.Gaps, f.gaps...)
		if f.last.IsZero() && w.Condition.Signal != "" {
			s.Unmeasured++
		}
	}
	slices.SortFunc(s.Gaps, func(a, b ferrule.Gap) int { return a.From.Compare(b.From) })
	s.Gaps = s.Gaps[max(0, len(s.Gaps)-maxShown):]
	return s
}

// addMarks adds what the marks say. It is called with mu held.
func (k *Keeper) addMarks(all []Status, seen map[string]bool) {
	at := make(map[string]*Status, len(all))
	for i := range all {
		at[all[i].ID] = &all[i]
	}
	last := make(map[string]*mark)
	for _, m := range k.marks {
		s := at[m.Watch]
		if s == nil || !seen[m.Device] {
			continue
		}
		s.Hits, s.Held = s.Hits+m.Hits, s.Held+m.Held
		if m.Active && len(s.Active) < maxShown {
			s.Active = append(s.Active, m.Device)
		}
		hit := &condition.Hit{Device: m.Device, Signal: s.Condition.Signal, Time: m.Fired, Value: m.Value}
		if before := last[m.Watch]; !m.At.IsZero() && (before == nil || m.At.After(before.At)) {
			s.Last, last[m.Watch] = hit, m
		}
		if m.Outcome.replaces(s.Outcome) {
			shown := *m.Outcome
			if shown.Hit == nil { // a mark of an earlier version
				shown.Hit = hit
			}
			s.Outcome = &shown
		}
	}
	for i := range all {
		s := &all[i]
		slices.Sort(s.Active)
		if m := last[s.ID]; m != nil && s.Outcome != nil && !s.Outcome.about(s.Last) {
			if s.NotCalled = m.NotCalled; s.NotCalled == "" && m.Outcome != nil && m.Outcome.Call == "" && m.Outcome.Code != "" {
				s.NotCalled = strings.TrimPrefix(m.Outcome.Message, "not called: ")
			}
		}
	}
}

// Merge adds what another node says about the same watch. A mark that both know is counted by
// the node that has more.
func (s *Status) Merge(other *Status) {
	s.Devices, s.Unmeasured = s.Devices+other.Devices, s.Unmeasured+other.Unmeasured
	for _, device := range other.Active {
		if !slices.Contains(s.Active, device) && len(s.Active) < maxShown {
			s.Active = append(s.Active, ferrule.Clean(device, ferrule.MaxWord))
		}
	}
	s.Hits, s.Held = max(s.Hits, other.Hits), max(s.Held, other.Held)
	if other.Last != nil && (s.Last == nil || other.Last.Time.After(s.Last.Time)) {
		s.Last, s.NotCalled = other.Last, ferrule.Clean(other.NotCalled, ferrule.MaxText)
	}
	if other.Outcome.replaces(s.Outcome) {
		s.Outcome = other.Outcome
	}
	if s.Gaps = append(s.Gaps, other.Gaps...); len(s.Gaps) > maxShown {
		s.Gaps = s.Gaps[len(s.Gaps)-maxShown:]
	}
	if s.Undelivered == "" {
		s.Undelivered = ferrule.Clean(other.Undelivered, ferrule.MaxText)
	}
}

// List returns the watches that a caller may know, oldest first: its own, and all for a
// person.
func (k *Keeper) List(who ferrule.Principal) []Status {
	listed := func(w *Watch) bool { return !w.Removed && mayKnow(who, w) }
	seen := k.seen(who, listed)
	k.mu.Lock()
	defer k.mu.Unlock()
	all, now := []Status{}, time.Now()
	for _, w := range k.watches {
		if listed(&w.Watch) {
			all = append(all, k.status(w, seen, now))
		}
	}
	k.addMarks(all, seen)
	slices.SortFunc(all, func(a, b Status) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return all
}

// Get returns one watch, by its ID or its name.
func (k *Keeper) Get(who ferrule.Principal, name string) (Status, error) {
	k.mu.Lock()
	found, err := k.find(who, name)
	k.mu.Unlock()
	if err != nil {
		return Status{}, err
	}
	seen := k.seen(who, func(w *Watch) bool { return w.ID == found.ID })
	k.mu.Lock()
	defer k.mu.Unlock()
	w, err := k.find(who, found.ID)
	if err != nil {
		return Status{}, err
	}
	one := []Status{k.status(w, seen, time.Now())}
	k.addMarks(one, seen)
	return one[0], nil
}

// mayKnow reports whether a caller may know a watch, and change it.
func mayKnow(who ferrule.Principal, w *Watch) bool {
	return who.Role == ferrule.Person || w.OwnedBy(who)
}

// find returns the watch with an ID or a name. It is called with mu held.
func (k *Keeper) find(who ferrule.Principal, name string) (*watched, error) {
	if w := k.watches[name]; w != nil && !w.Removed && mayKnow(who, &w.Watch) {
		return w, nil
	}
	var found []*watched
	for _, w := range k.watches {
		if w.Name == name && !w.Removed && mayKnow(who, &w.Watch) {
			found = append(found, w)
		}
	}
	switch len(found) {
	case 0:
		return nil, ferrule.Errorf(ferrule.NotFound, "there is no watch %q", ferrule.Clean(name, ferrule.MaxWord)).WithHint("%s to list the watches", howToList(who))
	case 1:
		return found[0], nil
	}
	return nil, ferrule.Errorf(ferrule.Invalid, "%d watches have the name %q", len(found), ferrule.Clean(name, ferrule.MaxWord)).WithHint("use the ID of the watch; %s to see it", howToList(who))
}

// howToList says how a caller lists watches.
func howToList(who ferrule.Principal) string {
	if who.Role == ferrule.Agent {
		return "call gateway__list_watches"
	}
	return "run `ferrule watch list`"
}
