package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// prefix begins the keys of shared states.
const prefix = "limits."

// sharedState is the state of an output at the node that holds its device.
type sharedState struct {
	Node  string `json:"node"`
	Key   string `json:"key"`
	State state  `json:"state"`
}

func sharedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return prefix + hex.EncodeToString(sum[:16])
}

// Run shares states with other nodes until ctx ends.
func (l *Limits) Run(ctx context.Context) error {
	if l.parts.Shared == nil {
		<-ctx.Done()
		return nil
	}
	l.parts.Shared.Watch(l.heard)
	return l.outbox.Run(ctx, l.parts.Shared, l.log)
}

func (l *Limits) share(key string, s state) {
	if l.parts.Shared == nil {
		return
	}
	if data, err := json.Marshal(sharedState{l.parts.Node, key, s}); err == nil {
		l.outbox.Put(sharedKey(key), data)
	}
}

// heard is called with the records of all nodes.
func (l *Limits) heard(name string, value []byte) {
	var s sharedState
	if !strings.HasPrefix(name, prefix) || json.Unmarshal(value, &s) != nil || s.Node == l.parts.Node || sharedKey(s.Key) != name {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign[s.Key] = s.State
}

// goOn continues with the state of another node, if that is newer. It is called with the
// lock of the output held.
func (l *Limits) goOn(key string, o *output, now time.Time) {
	l.mu.Lock()
	s, ok := l.foreign[key]
	delete(l.foreign, key)
	l.mu.Unlock()
	if ok && s.Updated.After(o.Updated) && o.Running == 0 {
		s.restart(now)
		o.state = s
	}
}
