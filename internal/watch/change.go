package watch

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Settings is what the owner of a watch chooses.
type Settings struct {
	// ID is that of the watch to change; empty for a new one.
	ID        string
	Name      string
	Condition condition.Condition
	Notify    []string
	Call      *Action
	Every     time.Duration // 0 for the default
	PerHour   int           // 0 for the default
	// Expires is how long the watch is good for; 0 for no end.
	Expires time.Duration
}

func newID() string { return strings.ToLower(rand.Text()[:idLen]) }

// Set adds a watch, or changes one of the caller. It is on disk when Set returns. Note says
// what other nodes do not know yet.
func (k *Keeper) Set(who ferrule.Principal, s Settings) (Status, error) {
	now := time.Now()
	w := Watch{
		ID: s.ID, Name: s.Name, Owner: who, Node: k.parts.Node, Condition: s.Condition, Notify: s.Notify, Call: s.Call,
		Every: ferrule.Duration(s.Every), PerHour: s.PerHour, Created: now.UTC().Truncate(time.Microsecond),
	}
	if w.Every == 0 {
		w.Every = ferrule.Duration(DefaultEvery)
	}
	if w.PerHour == 0 {
		w.PerHour = DefaultPerHour
	}
	if s.Expires < 0 || s.Expires > maxExpiry {
		return Status{}, ferrule.Errorf(ferrule.Invalid, "expires: must be greater than 0 and at most %v, got %v", maxExpiry, s.Expires)
	}
	if s.Expires > 0 {
		w.Expires = w.Created.Add(s.Expires)
	}
	if err := w.check(); err != nil {
		return Status{}, ferrule.Errorf(ferrule.Invalid, "%w", err)
	}
	for _, channel := range w.Notify {
		if k.sender(channel) == nil {
			return Status{}, ferrule.Errorf(ferrule.Invalid, "notify: %s is not configured on this node", channel).WithHint("the owner of this gateway sets watches.%s in ferrule.yaml, then runs `ferrule reload`", channel)
		}
	}
	if _, err := k.parts.Owner(&w); err != nil {
		return Status{}, err
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	k.prune(now)
	if err := k.replaces(who, &w); err != nil {
		return Status{}, err
	}
	if err := k.store(w); err != nil {
		return Status{}, err
	}
	return k.Get(who, w.ID)
}

// replaces completes a watch that is new, or replaces another one.
func (k *Keeper) replaces(who ferrule.Principal, w *Watch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.ID != "" {
		before, err := k.find(who, w.ID)
		if err != nil {
			return err
		}
		if !before.OwnedBy(who) { // its calls would be those of another one
			return ferrule.Errorf(ferrule.Denied, "%s was set by %s, who alone can change it", before.Name, before.Owner).WithHint("disable or remove it, and set another one")
		}
		w.ID, w.Version, w.Off, w.OffBy = before.ID, before.Version, before.Off, before.OffBy
		return k.room(w, k.matching(w)-len(before.followers))
	}
	all, own := 0, 0
	for _, other := range k.watches {
		if other.Removed {
			continue
		}
		all++
		if other.Owner.Account() == who.Account() {
			own++
		}
	}
	if all >= MaxWatches || who.Role == ferrule.Agent && own >= MaxOwn || len(k.watches) >= maxKept {
		return ferrule.Errorf(ferrule.Limited, "too many watches: limit is %d, and %d of one agent", MaxWatches, MaxOwn).WithHint("remove watches that are not needed")
	}
	w.ID = newID()
	return k.room(w, k.matching(w))
}

// matching returns how many devices of this node a watch selects. It is called with mu held.
func (k *Keeper) matching(w *Watch) (n int) {
	selector, err := condition.ParseSelector(w.Condition.Device)
	if err != nil {
		return 0
	}
	for _, d := range k.devices {
		if selector.Matches(d.dev) {
			n++
		}
	}
	return n
}

// store saves the next version of a watch and shares it. It is called with changing held.
func (k *Keeper) store(w Watch) error {
	w.Version = max(uint64(time.Now().UnixMicro()), w.Version+1)
	if err := k.file.Put(watchKey+w.ID, w); err != nil {
		return ferrule.Errorf(ferrule.Internal, "the watch was not changed, because it cannot be saved: %w", err).WithHint("check that the disk of the data directory is not full")
	}
	k.mu.Lock()
	k.set(w)
	k.mu.Unlock()
	if data, err := json.Marshal(w); err == nil {
		k.share(watchKey+w.ID, data)
	}
	k.parts.Updated(w.ID)
	return nil
}

// Enable enables or disables a watch.
func (k *Keeper) Enable(who ferrule.Principal, name string, on bool) (Status, error) {
	w, err := k.change(who, name, func(w *Watch) {
		w.Off, w.OffBy = !on, ""
		if !on {
			w.OffBy = ferrule.Clean(who.String(), ferrule.MaxWord)
		}
	})
	if err != nil {
		return Status{}, err
	}
	return k.Get(who, w.ID)
}

// Remove removes a watch. It returns the watch as it was.
func (k *Keeper) Remove(who ferrule.Principal, name string) (Status, error) {
	before, err := k.Get(who, name)
	if err != nil {
		return before, err
	}
	_, err = k.change(who, before.ID, func(w *Watch) { *w = Watch{ID: w.ID, Version: w.Version, Created: w.Created, Removed: true} })
	return before, err
}

func (k *Keeper) change(who ferrule.Principal, name string, edit func(*Watch)) (Watch, error) {
	k.changing.Lock()
	defer k.changing.Unlock()
	k.mu.Lock()
	found, err := k.find(who, name)
	if err != nil {
		k.mu.Unlock()
		return Watch{}, err
	}
	next := found.Watch
	k.mu.Unlock()
	if who.Role == ferrule.Agent && next.Off && next.OffBy != ferrule.Clean(who.String(), ferrule.MaxWord) && next.OffBy != "" {
		if edit(&next); !next.Off && !next.Removed {
			return Watch{}, ferrule.Errorf(ferrule.Denied, "%s was disabled by %s", next.Name, found.OffBy).WithHint("a person can enable it again")
		}
		return next, k.store(next)
	}
	edit(&next)
	return next, k.store(next)
}
