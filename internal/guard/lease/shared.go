package lease

import (
	"encoding/json"
	"strings"
)

// The keys of shared records. A lease is shared by the node that holds its device. A node
// whose caller is gone shares that for each lease of the caller.
const (
	leasePrefix = "lease."
	gonePrefix  = "gone."
)

// departure says that the caller of a lease is gone.
type departure struct {
	Session string `json:"session"`
	Via     string `json:"via"`
}

// share shows a lease to other nodes. The channel is closed when they can see it, or when
// they cannot be reached; it is nil if there are none.
func (k *Keeper) share(key string, r record) (done <-chan struct{}) {
	if k.parts.Shared == nil {
		return nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	return k.outbox.Put(leasePrefix+key, data)
}

// shareUnheard shares the leases of an earlier run that other nodes do not know, because it
// could not reach them.
func (k *Keeper) shareUnheard() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.unheard {
		if l := k.leases[key]; l != nil {
			// model: lease_share
			k.share(key, l.record)
		}
	}
	clear(k.unheard)
}

// heard is called with the records of all nodes.
func (k *Keeper) heard(name string, value []byte) {
	if key, ok := strings.CutPrefix(name, leasePrefix); ok {
		k.heardLease(key, value)
	} else if key, ok := strings.CutPrefix(name, gonePrefix); ok && value != nil {
		k.heardGone(key, value)
	}
}

func (k *Keeper) heardLease(key string, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.foreign, key)
	delete(k.unheard, key)
	if value == nil {
		return
	}
	r, ok := parseRecord(value)
	if !ok || r.key() != key {
		return
	}
	l := k.leases[key]
	switch {
	case r.Ended && r.Node == k.parts.Node: // another node ended it while this one was away
		if l != nil && k.running != nil { // not here: other records wait meanwhile
			// model: lease_forget
			k.work.Go(func() { k.dropUnchanged(key, r.ID) })
		} else if l == nil {
			k.outbox.Put(leasePrefix+key, nil)
		}
	case r.Ended, r.Node == k.parts.Node:
	default:
		k.foreign[key] = r
		k.takeOver(key, r)
		k.tellGone(key, r)
	}
}

// takeOver ends a lease of another node whose device is here now: that node has ended, or
// has lost the device. It is called with mu held.
func (k *Keeper) takeOver(key string, r record) {
	dev := k.devices[r.Device]
	if dev == nil || dev.Local || dev.Address != r.Address || k.leases[key] != nil {
		return
	}
	l := &lease{record: r}
	k.leases[key] = l
	// model: lease_take
	k.due(key, l, "its device moved from node "+r.Node)
}

// unshare withdraws a lease that has ended. The node that recorded it must learn that. It
// is called with mu held.
func (k *Keeper) unshare(key string, r record) {
	if k.parts.Shared == nil {
		return
	}
	if r.Node == k.parts.Node {
		k.outbox.Put(leasePrefix+key, nil)
		return
	}
	delete(k.foreign, key)
	r.Ended = true
	k.share(key, r)
}

// tellGone tells the holder of a lease that its caller on this node is gone. It is called
// with mu held.
func (k *Keeper) tellGone(key string, r record) {
	if r.Via != k.parts.Node || !k.isGone(r.Session) || k.parts.Shared == nil {
		return
	}
	if data, err := json.Marshal(departure{r.Session, r.Via}); err == nil {
		k.outbox.Put(gonePrefix+key, data)
	}
}

// heardGone ends a lease whose caller on another node is gone.
func (k *Keeper) heardGone(key string, value []byte) {
	var d departure
	if json.Unmarshal(value, &d) != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[key]
	if l == nil || l.Node != k.parts.Node {
		return
	}
	if l.Via == d.Via && l.Session == d.Session {
		k.due(key, l, "the caller's session on node "+d.Via+" has ended")
	}
	k.outbox.Put(gonePrefix+key, nil)
}

// checkNodes ends the leases of callers whose node is gone. Alive is called without a lock.
func (k *Keeper) checkNodes() {
	k.mu.Lock()
	nodes := make(map[string]bool)
	for _, l := range k.leases {
		if l.Via != "" {
			nodes[l.Via] = true
		}
	}
	k.mu.Unlock()
	for node := range nodes {
		nodes[node] = k.parts.Alive(node)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, l := range k.leases {
		if alive, checked := nodes[l.Via]; checked && !alive && l.why == "" {
			k.due(key, l, "the caller's node "+l.Via+" is gone")
		}
	}
}
